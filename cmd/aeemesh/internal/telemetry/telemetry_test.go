package telemetry

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// A collector that is away fails every export: the log says so once a minute.
func TestACollectorThatIsAwayDoesNotFillTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		failed := notExported(slog.New(slog.NewTextHandler(&log, nil)))
		for range 90 {
			failed.Handle(errors.New("connection refused"))
			time.Sleep(time.Second)
		}
		if n := bytes.Count(log.Bytes(), []byte("telemetry not exported")); n != 2 {
			t.Errorf("%d lines in 90 seconds:\n%s", n, log.String())
		}
	})
}
