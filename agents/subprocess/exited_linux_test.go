package subprocess

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// A program that has ended keeps its number until Wait is called, so that what it
// left behind can be killed by it.
func TestAnEndedProgramKeepsItsNumber(t *testing.T) {
	t.Parallel()
	g, err := Start(exec.Command("sh", "-c", "sleep 600 >/dev/null 2>&1 </dev/null & exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	g.Exited()
	if err := syscall.Kill(g.PID(), 0); err != nil {
		t.Errorf("the number was given up: %v", err)
	}
	g.Kill()
	var exit *exec.ExitError
	if err := g.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("it ended with %v, want status 3", err)
	}
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !errors.Is(syscall.Kill(-g.PID(), 0), syscall.ESRCH) {
		if time.Now().After(deadline) {
			t.Fatal("its child is still there")
		}
		<-tick.C
	}
}
