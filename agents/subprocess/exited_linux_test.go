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
	gone(t, g)
}

// A shell that ends leaves its child behind, if only the shell is asked to end.
func TestAWholeGroupIsAskedToEnd(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "sleep 600 >/dev/null 2>&1 </dev/null & echo; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	g, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	g.Terminate()
	_ = g.Wait()
	gone(t, g)
}

// gone waits until no program of a group is left.
func gone(t *testing.T, g *Group) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !errors.Is(syscall.Kill(-g.PID(), 0), syscall.ESRCH) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(-g.PID(), syscall.SIGKILL)
			t.Fatal("its child is still there")
		}
		<-tick.C
	}
}
