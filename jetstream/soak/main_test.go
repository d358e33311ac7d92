package soak

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// The test binary also runs the child processes.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "disk" { // see TestDisksOfKilledSoaksAreUnmounted
		if _, err := newDisk(os.Args[2], 1<<20); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("mounted")
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
	}
	if len(os.Args) > 1 && os.Args[1] == "role" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		if err := Role(ctx, os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		stop()
		os.Exit(0)
	}
	os.Exit(natstest.AtOnce(m, 16).Run())
}

func testLauncher(t *testing.T) *launcher {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &launcher{self: []string{self, "role"}, dir: natstest.StoreDir(t)}
}
