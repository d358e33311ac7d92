package startup

import (
	"runtime/debug"
	"time"
)

const (
	percent = 400 // in place of Go's usual 100, as GOGC
	period  = 2 * time.Second
)

func init() {
	usual := debug.SetGCPercent(percent)
	if usual < 0 || usual > percent { // GOGC, as the operator has set it
		debug.SetGCPercent(usual)
		return
	}
	time.AfterFunc(period, func() { debug.SetGCPercent(usual) })
}
