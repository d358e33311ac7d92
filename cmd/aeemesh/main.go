package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if os.Getenv(envCoreDumps) != "1" {
		_ = forbidCoreDumps() // where it is not allowed to, it may dump core as any program
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks to end gracefully; the next one ends at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// envCoreDumps lets this program dump core, with the keys and secrets in its memory, if
// it is 1: to look for a fault in it with a debugger.
const envCoreDumps = "AEEMESH_CORE_DUMPS"
