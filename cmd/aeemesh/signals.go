package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilSignalled is ctx until the first SIGINT, SIGTERM or SIGHUP, which asks to
// end gracefully. A SIGINT or SIGTERM after that ends the process at once. A
// SIGHUP after that does not: a terminal that is closed may send several. Under
// nohup, which ignores SIGHUP, it is ignored.
func untilSignalled(ctx context.Context) context.Context {
	ctx, end := context.WithCancel(ctx)
	first := make(chan os.Signal, 1)
	signal.Notify(first, os.Interrupt, syscall.SIGTERM)
	hangup := make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(hangup, syscall.SIGHUP)
	}
	go func() {
		select {
		case <-first:
		case <-hangup:
		}
		signal.Stop(first) // the next one does what it does by default
		end()
	}()
	return ctx
}

// outliveReaders lets the process live on where nobody reads what it prints any
// more: a pipe to a logger that is gone must not end a worker in the middle of
// its tasks. Without it Go ends the process with SIGPIPE.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
