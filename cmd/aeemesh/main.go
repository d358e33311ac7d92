package main

import (
	"context"
	"os"
)

func main() {
	if os.Getenv(envCoreDumps) != "1" {
		_ = forbidCoreDumps() // where it is not allowed to, it may dump core as any program
	}
	os.Exit(run(untilSignalled(context.Background()), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// envCoreDumps lets this program dump core, with the keys and secrets in its memory, if
// it is 1: to look for a fault in it with a debugger.
const envCoreDumps = "AEEMESH_CORE_DUMPS"
