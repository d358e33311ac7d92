package main

import (
	"context"
	"os"

	_ "github.com/aeemesh/aeemesh/cmd/aeemesh/internal/startup" // makes the start cheaper
)

func main() {
	if os.Getenv(envCoreDumps) != "1" {
		_ = forbidCoreDumps() // if that is not permitted, it may dump core like any program
	}
	os.Exit(run(untilSignalled(context.Background()), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// envCoreDumps, if 1, permits core dumps, which contain the keys and secrets in
// memory: for debugging.
const envCoreDumps = "AEEMESH_CORE_DUMPS"
