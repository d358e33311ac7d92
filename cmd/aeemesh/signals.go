package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
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

// outliveReaders keeps the process running when the reader of its output is
// gone: a closed pipe to a logger must not end a worker in the middle of its
// tasks. Otherwise Go would end the process with SIGPIPE.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// beginLog is called when a long-running command begins its work: from here on
// its messages are a log, and the first one identifies the process.
func (a *app) beginLog(cmd *cobra.Command) {
	outliveReaders()
	a.term.Logs.Store(term.LogWords)
	a.term.Tell(term.Event{Level: slog.LevelInfo, Style: term.StyleFaint, Msg: "starting",
		Attrs: []any{"command", cmd.Name(), "version", version(), "host", hostname(), "pid", os.Getpid()}},
		"aeemesh %s %s on %s, process %d", version(), cmd.Name(), hostname(), os.Getpid())
}

// hostname is this machine's name.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
