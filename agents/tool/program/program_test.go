//go:build unix

package program_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/program"
	"github.com/aeemesh/aeemesh/agents/tool/tooltest"
	"github.com/aeemesh/aeemesh/envelope/pause"
)

// The test binary is the program under test as well: its first argument says
// how to behave.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "behave" {
		behave(os.Args[2])
		return
	}
	os.Exit(m.Run())
}

func behave(how string) {
	args, _ := io.ReadAll(os.Stdin)
	switch how {
	case string(tooltest.Echo):
		os.Stdout.Write(args)
	case string(tooltest.Fail):
		fmt.Printf(`{"error":%q}`, tooltest.FailText)
		os.Exit(3)
	case string(tooltest.Hang):
		fmt.Fprintln(os.Stderr, "waiting")
		time.Sleep(time.Hour) // killed long before
	case "silent failure":
		fmt.Fprintln(os.Stderr, "secret detail")
		os.Exit(4)
	case "repeats a credential":
		fmt.Fprintln(os.Stderr, "the token hunter2-Kq7Zx2Wd9 is bad")
		fmt.Print("null")
	case "environment":
		json.NewEncoder(os.Stdout).Encode(os.Environ())
	case "directory":
		dir, _ := os.Getwd()
		json.NewEncoder(os.Stdout).Encode(dir)
	case "no JSON":
		fmt.Print(`{"a":1} {"b":2}`)
	case "flood":
		for {
			if _, err := os.Stdout.Write(bytes.Repeat([]byte("x"), 4096)); err != nil {
				return
			}
		}
	case "chatter":
		fmt.Fprint(os.Stderr, strings.Repeat("x", 100_000)+"the end")
		fmt.Print("1")
	case "family", "orphan", "daemon":
		// A child that waits for ever and holds our standard output, except the daemon's.
		child := exec.Command(os.Args[0], "behave", "child")
		if how != "daemon" {
			child.Stdout = os.Stdout
		}
		if err := child.Start(); err != nil {
			panic(err)
		}
		var in struct{ File string }
		json.Unmarshal(args, &in)
		if err := os.WriteFile(in.File, []byte(strconv.Itoa(child.Process.Pid)), 0o600); err != nil {
			panic(err)
		}
		if how == "family" {
			child.Wait()
		}
		fmt.Print("1")
	case "child":
		time.Sleep(time.Hour)
	}
}

func newTool(t *testing.T, how string, mend ...func(*program.Config)) *program.Tool {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := program.Config{Definition: tooltest.Definition(), Command: []string{self, "behave", how}}
	for _, f := range mend {
		f(&cfg)
	}
	tl, err := program.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

func TestConforms(t *testing.T) {
	t.Parallel()
	tooltest.Run(t, func(t *testing.T, b tooltest.Behaviour) tool.Tool { return newTool(t, string(b)) })
}

func TestFailuresByKind(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]string{
		string(tooltest.Fail): "tool subject: failed: " + tooltest.FailText,
		"silent failure":      "tool subject: failed: the program exited with status 4",
		"no JSON":             "tool subject: invalid result: the program's output is not one JSON value",
		"nothing":             "tool subject: invalid result: the program's output is not one JSON value",
		"flood":               "tool subject: invalid result: more than 10000 bytes",
	} {
		_, err := newTool(t, how, func(c *program.Config) { c.MaxResult = 10000 }).Call(t.Context(), json.RawMessage(`{}`))
		if err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", how, err, want)
		}
	}
	_, err := newTool(t, "", func(c *program.Config) { c.Command[0] = "/no/such/program" }).Call(t.Context(), json.RawMessage(`{}`))
	if !errors.Is(err, tool.ErrFailed) || !errors.Is(err, os.ErrNotExist) || strings.Contains(err.Error(), "/no/such") {
		t.Errorf("missing program: %v", err)
	}
	if e := new(tool.Error); !errors.As(err, &e) || !e.NotMade {
		t.Errorf("missing program: %+v, want it not made", e)
	}
	if got := logged(t, err); !strings.Contains(got, "/no/such/program: no such file") {
		t.Errorf("the log does not say why it could not be started: %s", got)
	}
}

func TestTheProgramGetsItsEnvironmentAndNoOther(t *testing.T) {
	t.Setenv("AEEMESH_TEST_SECRET", "do not inherit")
	for _, env := range [][]string{nil, {"LANG=C", "A=b=c"}} {
		got, err := newTool(t, "environment", func(c *program.Config) { c.Env = env }).Call(t.Context(), json.RawMessage(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		want, _ := json.Marshal(append([]string{}, env...))
		if string(got) != string(want) {
			t.Errorf("environment %s, want %s", got, want)
		}
	}
}

// A program can tell a repeated call by its key, and gets nothing else with it.
func TestTheProgramIsToldTheKeyOfTheCall(t *testing.T) {
	t.Parallel()
	tl := newTool(t, "environment", func(c *program.Config) { c.Env = []string{"LANG=C"} })
	for range 2 { // the first call must not leave its key behind
		for _, key := range []string{"run.1.2", ""} {
			ctx := t.Context()
			want := `["LANG=C"]`
			if key != "" {
				ctx, want = tool.WithKey(ctx, key), `["LANG=C","AEEMESH_IDEMPOTENCY_KEY=run.1.2"]`
			}
			if got, err := tl.Call(ctx, json.RawMessage(`{}`)); err != nil || string(got) != want {
				t.Errorf("key %q: environment %s, error %v, want %s", key, got, err, want)
			}
		}
	}
}

func TestOnlyTheOperatorMakesAProgramRepeatable(t *testing.T) {
	t.Parallel()
	for _, safe := range []bool{false, true} {
		if got := tool.IsRepeatSafe(newTool(t, "", func(c *program.Config) { c.RepeatSafe = safe })); got != safe {
			t.Errorf("repeat safe: got %v, want %v", got, safe)
		}
	}
}

func TestTheProgramRunsInItsDirectory(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	got, err := newTool(t, "directory", func(c *program.Config) { c.Dir = dir }).Call(t.Context(), json.RawMessage(`{}`))
	if want := strconv.Quote(dir); err != nil || string(got) != want {
		t.Errorf("directory %s, error %v, want %s", got, err, want)
	}
}

// If the beginning of standard error is cut off in the middle of a credential, the rest of the
// credential is not logged.
func TestACredentialAtTheCutOfStandardErrorIsRemoved(t *testing.T) {
	t.Parallel()
	for cut := 5; cut <= len("hunter2-Kq7Zx2Wd9"); cut++ {
		var buf bytes.Buffer
		var known secret.Redactor
		known.Add(secret.New("hunter2-Kq7Zx2Wd9"))
		_, err := newTool(t, "repeats a credential", func(c *program.Config) {
			c.Log = slog.New(secret.LogHandler(slog.NewTextHandler(&buf, nil), &known))
			c.MaxStderr = cut + len(" is bad\n")
			c.Redactor = &known
		}).Call(t.Context(), json.RawMessage(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := buf.String(); !strings.Contains(got, secret.Redacted+" is bad") || strings.Contains(got, "x2Wd9") {
			t.Errorf("log %s", got)
		}
	}
}

func TestStandardErrorGoesToTheLogAndIsBounded(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	log := func(c *program.Config) {
		c.Log = slog.New(slog.NewTextHandler(&buf, nil))
		c.MaxStderr = 20
	}
	if _, err := newTool(t, "chatter", log).Call(t.Context(), json.RawMessage(`{}`)); err != nil {
		t.Fatal(err)
	}
	if got := buf.String(); !strings.Contains(got, `level=INFO`) || !strings.Contains(got, `stderr="xxxxxxxxxxxxxthe end" cut=true`) {
		t.Errorf("log %s", got)
	}
	buf.Reset()
	// The caller logs the error of a failed call, once, with the standard error.
	_, err := newTool(t, "silent failure", log).Call(t.Context(), json.RawMessage(`{}`))
	if buf.Len() > 0 || strings.Contains(err.Error(), "secret") {
		t.Fatalf("log %s, error %v", buf.String(), err)
	}
	if got := logged(t, err); !strings.Contains(got, `cause.err="exit status`) || !strings.Contains(got, "secret detail") {
		t.Errorf("log %s", got)
	}
}

// logged returns the line that the caller logs for a failed call.
func logged(t *testing.T, err error) string {
	t.Helper()
	var failure *tool.Error
	if !errors.As(err, &failure) {
		t.Fatalf("error %v", err)
	}
	cause, told := failure.Err.(slog.LogValuer)
	if !told {
		return "" // not at level warn
	}
	var buf bytes.Buffer
	slog.New(slog.NewTextHandler(&buf, nil)).Warn("failed", "cause", cause)
	return buf.String()
}

// A call that ends, whichever way, leaves no process of its group behind.
func TestTheWholeGroupIsKilled(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"family", "orphan", "daemon"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pid")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			args, _ := json.Marshal(map[string]string{"File": file})
			done := make(chan error, 1)
			go func() {
				_, err := newTool(t, how).Call(ctx, args)
				done <- err
			}()
			pid := 0
			poll(t, "the child's pid", func() bool {
				b, err := os.ReadFile(file)
				if err != nil {
					return false
				}
				pid, err = strconv.Atoi(string(b))
				return err == nil
			})
			if how == "family" {
				cancel()
			}
			err := <-done
			if how == "family" && !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want %v", err, context.Canceled)
			}
			if how == "daemon" && err != nil {
				t.Errorf("error %v", err)
			}
			if how == "orphan" && (!errors.Is(err, tool.ErrFailed) || !strings.Contains(err.Error(), "left a child behind")) {
				t.Errorf("error %v", err)
			}
			if how == "orphan" {
				if got := logged(t, err); !strings.Contains(got, "held its input or output open") {
					t.Errorf("log %s", got)
				}
			}
			poll(t, "the child's end", func() bool { return !alive(pid) })
		})
	}
}

// alive reports whether the process runs; a zombie does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
		pause.For(t.Context(), 2*time.Millisecond)
	}
}

func TestNewReportsAllProblems(t *testing.T) {
	t.Parallel()
	_, err := program.New(program.Config{
		Definition: tool.Definition{Name: "not a name"},
		Command:    []string{"sh", "a\x00b"},
		Env:        []string{"TOKEN", "=secret", "OK=1"},
		MaxResult:  -1,
	})
	for _, want := range []string{`"not a name"`, `"sh": give the program's path`, "command[1]: has a NUL", "env[0]", "env[1]", "negative"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "secret") {
		t.Errorf("the error quotes a value: %v", err)
	}
	if _, err := program.New(program.Config{Definition: tooltest.Definition()}); err == nil {
		t.Error("no command, no error")
	}
}
