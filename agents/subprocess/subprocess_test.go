package subprocess

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The test's own binary is the program.
func TestMain(m *testing.M) {
	if os.Getenv("SUBPROCESS_TEST") == "hang" {
		select {}
	}
	os.Exit(m.Run())
}

func start(t *testing.T) *Group {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{"SUBPROCESS_TEST=hang"}
	g, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Finding 23 of the security review: the group was killed after its leader had been
// waited for, when its number could be another process's.
func TestAGroupIsNotSignalledAfterWait(t *testing.T) {
	t.Parallel()
	g := start(t)
	g.Kill()
	var exit *exec.ExitError
	if err := g.Wait(); !errors.As(err, &exit) {
		t.Errorf("a program that was killed ended with %v", err)
	}
	g.signal(func(*exec.Cmd) { t.Error("a signal is sent to a number that may be another's") })
}

func TestEnvironmentIsShort(t *testing.T) {
	t.Parallel()
	worker := map[string]string{"PATH": "/bin", "HOME": "/h", "OPENAI_API_KEY": "sk", "VAULT_TOKEN": "t", "CI": "1"}
	lookup := func(name string) (string, bool) { v, ok := worker[name]; return v, ok }
	got := Env([]string{"CI", "MODE=fast", "UNSET"}, lookup)
	if want := []string{"PATH=/bin", "HOME=/h", "CI=1", "MODE=fast"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Env(nil, func(string) (string, bool) { return "", false }); got == nil || len(got) != 0 {
		t.Errorf("%q: nil would be inherited", got)
	}
	for list, ok := range map[string]bool{"A": true, "A=": true, "A=b c": true, "": false, "=x": false, "A B": false, "A\x00": false, "A=\x00": false} {
		if err := CheckEnv([]string{list}); (err == nil) != ok {
			t.Errorf("%q: %v", list, err)
		}
	}
	if err := CheckEnv([]string{"=hunter2"}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v: want an error without the value", err)
	}
}

// A program that cannot be started leaves no descriptor behind.
func TestAProgramThatDoesNotStartLeavesNoPipe(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/no/such/program")
	_, pipes, err := StartPiped(cmd)
	if err == nil {
		t.Fatal("it was started")
	}
	for _, f := range []any{pipes.Stdin, pipes.Stdout, pipes.Stderr, cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		if err := f.(*os.File).Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("an end of a pipe was open: %v", err)
		}
	}
}
