package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilSignalled returns a context that ends at the first SIGINT, SIGTERM or
// SIGHUP, which asks the process to stop gracefully. A further SIGINT or
// SIGTERM ends the process at once. A further SIGHUP does not, because a
// terminal that is closed may send several. Under nohup, which ignores SIGHUP,
// it stays ignored.
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
		signal.Stop(first) // the next signal has its default effect
		end()
	}()
	return ctx
}
