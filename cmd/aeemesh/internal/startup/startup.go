package startup

import (
	"os"
	"runtime/debug"
	"time"
)

const (
	percent = 400 // in place of Go's usual 100
	period  = 2 * time.Second
)

func init() {
	if os.Getenv("GOGC") != "" {
		return // the operator has set GOGC
	}
	usual := debug.SetGCPercent(percent)
	time.AfterFunc(period, func() { debug.SetGCPercent(usual) })
}
