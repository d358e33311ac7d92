package session

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// OutliveReaders keeps the process running when the reader of its output is
// gone: a closed pipe to a logger must not end a worker in the middle of its
// tasks. Otherwise Go would end the process with SIGPIPE.
func OutliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// WhileRead returns a context that also ends when stdout is a pipe whose reader is gone, as
// after "| head"; on Linux alone. It is for commands that run for long without printing data, and that started
// processes which have to end first.
func (a *App) WhileRead(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if f, ok := a.Term.Data.Writer.(*os.File); ok && canAwaitReader {
		OutliveReaders()
		go func() {
			if awaitReaderGone(ctx, f) {
				cancel()
			}
		}()
	}
	return ctx, cancel
}
