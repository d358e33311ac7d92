//go:build unix

package agents_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/program"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// hostProgram serves the test program as an agent.
func (w *world) hostProgram(p *program.Program, concurrency int) (stop func() error) {
	w.t.Helper()
	return w.host(&agents.Agent{
		Agent:   mesh.Agent{Entity: entity, Handler: p, Health: p.Health, Concurrency: concurrency},
		Program: p,
	})
}

func TestProgramAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hostProgram(newProgram(t, "serve", nil), 1)

	if got := w.send(entity, do("echo", "hello"), sending{}); got.payload != `{"text":"hello"}` {
		t.Errorf("result: got %+v", got)
	}
	got := w.send(entity, do("stream", "one two three"), sending{stream: true})
	want := sent{payload: `{"text":"one two three"}`, stream: []string{`{"text":"one"}`, `{"text":"two"}`, `{"text":"three"}`}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("stream: got %+v, want %+v", got, want)
	}
	if got := w.send(entity, do("stream", "one two"), sending{}); got.payload != `{"text":"one two"}` {
		t.Errorf("nobody asked for a stream: got %+v", got)
	}
}

// The program reads the whole task, in one line although the payload had
// several.
func TestProgramReadsTheEnvelopeInOneLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hostProgram(newProgram(t, "serve", nil), 1)

	got := w.send(entity, "{\"do\": \"line\",\n\n \"text\": \"a\\nb\",\r\n \"n\": 1.50}", sending{intent: "code.review"})
	var result struct{ Line string }
	if err := json.Unmarshal([]byte(got.payload), &result); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	if n := strings.Count(result.Line, "\n"); n != 1 {
		t.Errorf("%d line ends, want 1: %q", n, result.Line)
	}
	task, err := envelope.Parse([]byte(strings.TrimSpace(result.Line)))
	if err != nil {
		t.Fatal(err)
	}
	if task.From != "human.ada" || task.To != entity || task.Intent != "code.review" ||
		string(task.Payload) != `{"do":"line","text":"a\nb","n":1.50}` {
		t.Errorf("the program read %s", result.Line)
	}
}

func TestProgramErrorsTravelAsTheyAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hostProgram(newProgram(t, "serve", nil), 1)

	for name, c := range map[string]struct {
		payload string
		want    envelope.Error
	}{
		"own code": {`{"code":"NO_REPO","message":"no such repository","retryable":true,"backoff_ms":70,"repo":"x"}`,
			envelope.Error{Code: "NO_REPO", Message: "no such repository", Retryable: true, BackoffMS: 70}},
		"no code": {`{"message":"it broke"}`, envelope.Error{Code: envelope.CodeAgent, Message: "it broke"}},
		"busy": {`{"code":"E_BUSY","message":"I am busy","retryable":true,"backoff_ms":70}`,
			envelope.Error{Code: envelope.CodeBusy, Message: "I am busy", Retryable: true, BackoffMS: 70}},
		"another's": {`{"code":"E_NO_RESPONDERS","message":"my helper is away","retryable":true}`,
			envelope.Error{Code: envelope.CodeUnavailable, Message: "my helper is away", Retryable: true}},
		"the mesh's code": {`{"code":"E_NOT_FOUND","message":"no such file"}`, envelope.Error{Code: envelope.CodeNotFound, Message: "no such file"}},
		"signature":       {`{"code":"E_SIG_INVALID","message":"bad"}`, envelope.Error{Code: envelope.CodeAgent, Message: "E_SIG_INVALID: bad"}},
		"code of words":   {`{"code":"no\nsuch repo","message":"it broke"}`, envelope.Error{Code: envelope.CodeAgent, Message: "it broke"}},
		"long code":       {`{"code":"` + strings.Repeat("X", 129) + `","message":"it broke"}`, envelope.Error{Code: envelope.CodeAgent, Message: "it broke"}},
		"code 7":          {`{"code":7,"message":"it broke"}`, envelope.Error{Code: envelope.CodeAgent, Message: "it broke"}},
		"nothing":         {`{}`, envelope.Error{Code: envelope.CodeAgent, Message: "the agent's program gave no message"}},
		"no object":       {``, envelope.Error{Code: envelope.CodeAgent, Message: "the agent's program answered without a payload object"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.send(entity, do("error", c.payload), sending{})
			if got.err == nil {
				t.Fatalf("got %+v", got)
			}
			e := envelope.Error{Code: got.err.Code, Message: got.err.Message, Retryable: got.err.Retryable, BackoffMS: got.err.BackoffMS}
			if !reflect.DeepEqual(e, c.want) {
				t.Errorf("got %+v, want %+v", e, c.want)
			}
		})
	}
	if got := w.send(entity, do("nonobject", ""), sending{}); got.err == nil || got.err.Code != envelope.CodeAgent {
		t.Errorf("result that is no object: got %+v", got)
	}
}

func TestProgramGarbageIsCountedAndHarmless(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProgram(t, "serve", nil)
	w.hostProgram(p, 1)

	if got := w.send(entity, do("garbage", ""), sending{stream: true}); got.payload != `{"text":"still here"}` || got.stream != nil {
		t.Errorf("got %+v", got)
	}
	want := map[string]any{
		"program": "running", "restarts": 0, "in_flight": 0,
		"lines_malformed": int64(3), "lines_oversized": int64(1), "lines_unknown_task": int64(1), "lines_late": int64(1),
	}
	var health mesh.Health
	until(t, "the second result is counted", func() bool {
		health = p.Health()
		return health.Details["lines_late"] != nil
	})
	if health.Status != "healthy" || !reflect.DeepEqual(health.Details, want) {
		t.Errorf("health %+v, want details %v", health, want)
	}
}

// The log says why a line was ignored, without a word of the line.
func TestProgramLinesAreIgnoredForAReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var log safeBuffer
	p := newProgram(t, "serve", func(c *program.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	w.hostProgram(p, 1)
	for line, want := range map[string]string{
		`secret`: `reason="it is no JSON object on one line: byte 1 is wrong"`,
		`{"type":"result","reply_to":"x","payload":{"secret":NaN}}`:             `reason="it is no JSON object on one line: byte 53 is wrong"`,
		"{\"type\":\"result\",\"reply_to\":\"x\",\"payload\":\n{\"secret\":1}}": `reason="it is no JSON object on one line: it ends too early"`,
		`{"type":"result","reply_to":7,"payload":{"secret":1}}`:                 `reason="its reply_to is no text"`,
		`{"type":"result","payload":{"secret":1}}`:                              `reason="it has no reply_to"`,
		`["secret"]`:               `reason="it is no JSON object on one line"`,
		strings.Repeat("x", 70000): `reason="it is longer than 65536 bytes"`,
	} {
		if got := w.send(entity, do("lines", line), sending{}); got.payload != `{"text":"answered"}` {
			t.Errorf("%.80s: got %+v", line, got)
		}
		if got := log.String(); !strings.Contains(got, want) || strings.Contains(got, "secret") {
			t.Errorf("%.80s: log %s, want %s", line, got, want)
		}
	}
}

func TestProgramAnswerOfIllegalTypeFailsItsTaskAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProgram(t, "serve", nil)
	w.hostProgram(p, 1)
	for _, typ := range []string{`"banana"`, `"task"`, `""`, `7`, `null`} {
		if got := w.send(entity, do("type", typ), sending{}); got.err == nil || got.err.Code != envelope.CodeAgent || got.err.Retryable {
			t.Errorf("type %s: got %+v, want E_AGENT", typ, got)
		}
	}
	if got := w.send(entity, do("echo", "free"), sending{}); got.payload != `{"text":"free"}` {
		t.Errorf("its place is not free: got %+v", got)
	}
	if d := p.Health().Details; d["lines_malformed"] != int64(5) || d["lines_unknown_task"] != nil {
		t.Errorf("health %v", d)
	}
}

// A program's answer that cannot be read, but says to which task it belongs, ends the task
// at once: its sender learns the cause, and does not wait until the deadline.
func TestProgramAnswerThatCannotBeReadFailsItsTaskAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProgram(t, "serve", nil)
	w.hostProgram(p, 1)
	long := strings.Repeat("x", 70_000) // the limit is 64 KiB
	for name, c := range map[string]struct {
		line string
		want *envelope.Error
	}{
		"too long":                  {`{"type":"result","reply_to":"TASK","payload":{"text":"` + long + `"}}`, tooLong},
		"too long, reply_to last":   {`{"payload":{"type":"stream","text":"` + long + `"}, "reply_to": "TASK", "type": "result"}`, tooLong},
		"NaN":                       {`{"type":"result","reply_to":"TASK","payload":{"score":NaN}}`, noJSON},
		"a text of another dialect": {`{'type': 'result', 'reply_to': 'TASK', 'payload': {'ok': True}}`, noJSON},
		"a name twice":              {`{"type":"result","reply_to":"TASK","payload":{"a":1,"a":2}}`, noJSON},
	} {
		got := w.send(entity, do("raw", c.line), sending{})
		if got.err == nil || got.err.Code != c.want.Code || got.err.Message != c.want.Message || got.err.Retryable {
			t.Errorf("%s: got %+v, want %v", name, got, c.want)
		}
	}
	if got := w.send(entity, do("echo", "free"), sending{}); got.payload != `{"text":"free"}` {
		t.Errorf("its place is not free: got %+v", got)
	}
	if d := p.Health().Details; d["lines_malformed"] != int64(3) || d["lines_oversized"] != int64(2) {
		t.Errorf("health %v", d)
	}
}

var (
	tooLong = envelope.Errorf(envelope.CodeTooLarge, "the agent's program answered with a line of more than 65536 bytes")
	noJSON  = envelope.Errorf(envelope.CodeAgent, "the agent's program answered with a line that is no JSON object")
)

// An unreadable line that names several tasks, none, or a stream says nothing about the end of a task.
func TestProgramLineThatIsNoAnswerIsHarmless(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hostProgram(newProgram(t, "serve", nil), 1)
	for _, line := range []string{
		`got the task TASK`,
		`{'id': 'TASK', 'reply_to': None}`,
		`{"type":"stream","reply_to":"TASK","payload":{"text":NaN}}`,
		`{"type":"result","reply_to":"another-task","payload":{"text":NaN}}`,
	} {
		if got := w.send(entity, do("raw", line+"\n"+`{"type":"result","reply_to":"TASK","payload":{"text":"done"}}`), sending{}); got.payload != `{"text":"done"}` {
			t.Errorf("%s: got %+v", line, got)
		}
	}
}

func TestProgramTwoInFlightOutOfOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProgram(t, "serve", nil)
	w.hostProgram(p, 3)

	var wg sync.WaitGroup
	results := make([]sent, 2)
	for i := range results {
		wg.Go(func() { results[i] = w.send(entity, do("hold", ""), sending{stream: true}) })
		until(t, "the program holds it", func() bool { return p.Health().Details["in_flight"] == i+1 })
	}
	if got := w.send(entity, do("release", ""), sending{}); got.payload != `{"text":"released"}` {
		t.Errorf("release: got %+v", got)
	}
	wg.Wait()
	texts := map[string]bool{results[0].payload: true, results[1].payload: true}
	if want := map[string]bool{`{"text":"held 0"}`: true, `{"text":"held 1"}`: true}; !reflect.DeepEqual(texts, want) {
		t.Errorf("got %v, want %v", results, want)
	}
}

func TestProgramThatDiesIsStartedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProgram(t, "serve", nil)
	w.hostProgram(p, 2)

	var held sent
	var wg sync.WaitGroup
	wg.Go(func() { held = w.send(entity, do("hold", ""), sending{}) })
	until(t, "the program holds a task", func() bool { return p.Health().Details["in_flight"] == 1 })
	crashed := w.send(entity, do("crash", ""), sending{})
	wg.Wait()
	for name, got := range map[string]sent{"the crashing task": crashed, "the other task": held} {
		if got.err == nil || got.err.Code != envelope.CodeUnavailable || !got.err.Retryable {
			t.Errorf("%s: got %+v, want a retryable E_UNAVAILABLE", name, got)
		}
	}
	if got := w.send(entity, do("echo", "back"), sending{}); got.payload != `{"text":"back"}` {
		t.Errorf("after the crash: got %+v", got)
	}
	if h := p.Health(); h.Status != "healthy" || h.Details["restarts"] != 1 || h.Details["last_exit"] != "exit status 7" {
		t.Errorf("health %+v", h)
	}
}

func TestProgramThatKeepsDyingIsUnhealthy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProgram(t, "dead", func(c *program.Config) { c.StartWait = 10 * time.Millisecond })
	w.hostProgram(p, 1)

	until(t, "it is unhealthy, and still tried", func() bool {
		h := p.Health()
		restarts, _ := h.Details["restarts"].(int)
		return h.Status == "unhealthy" && restarts > 5
	})
	if reason, _ := p.Health().Details["reason"].(string); !strings.Contains(reason, "exit status 3") {
		t.Errorf("reason %q", reason)
	}
	got := w.send(entity, do("echo", "x"), sending{})
	if got.err == nil || got.err.Code != envelope.CodeUnavailable || !got.err.Retryable || got.err.BackoffMS == 0 {
		t.Errorf("got %+v", got)
	}
}

// A program that cannot be started is no reason for its worker to end: a deployment may be
// replacing it.
func TestProgramThatCannotBeStartedIsUnhealthy(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text   string
		starts bool // it runs once
		want   string
	}{
		"no executable format": {text: "print('hello')\n", want: "exec format error"},
		"no interpreter":       {text: "#!/no/such/interpreter\n", want: "no such file"},
		"removed":              {text: "#!/bin/sh\nrm -- \"$0\"\n", starts: true, want: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			file := filepath.Join(t.TempDir(), "bot")
			if err := os.WriteFile(file, []byte(tt.text), 0o755); err != nil {
				t.Fatal(err)
			}
			p := newProgram(t, "", func(c *program.Config) {
				c.Command, c.StartWait = []string{file}, 10*time.Millisecond
			})
			w.hostProgram(p, 1)

			until(t, "it is unhealthy, and still tried", func() bool {
				h := p.Health()
				restarts, _ := h.Details["restarts"].(int)
				return h.Status == "unhealthy" && restarts > 5
			})
			if reason, _ := p.Health().Details["reason"].(string); !strings.Contains(reason, tt.want) {
				t.Errorf("reason %q", reason)
			}
			got := w.send(entity, do("echo", "x"), sending{})
			if got.err == nil || got.err.Code != envelope.CodeUnavailable || !got.err.Retryable || got.err.BackoffMS == 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// Section 6, row 22 of the operators' review: the sender of a live task to a program
// that keeps dying heard of a time-out, for its worker waited for longer.
func TestAProgramThatKeepsDyingIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProgram(t, "dead", func(c *program.Config) { c.StartWait = time.Hour })
	w.hostProgram(p, 1)
	until(t, "it is unhealthy", func() bool { return p.Health().Status == "unhealthy" })
	if got := w.send(entity, do("echo", "x"), sending{}); got.err == nil || got.err.Code != envelope.CodeUnavailable || !got.err.FromPeer() {
		t.Errorf("got %+v", got)
	}
}

// Nor does a task that waits already go on waiting when the program turns out not to start.
func TestATaskDoesNotWaitForAProgramThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "bot")
	if err := os.WriteFile(file, []byte("print('hello')\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := newProgram(t, "", func(c *program.Config) {
		c.Command, c.StartWait = []string{file}, time.Hour
		c.RestartMin, c.RestartMax = 200*time.Millisecond, 200*time.Millisecond
	})
	w.hostProgram(p, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if got := w.send(entity, do("echo", "x"), sending{ctx: ctx}); got.err == nil || got.err.Code != envelope.CodeUnavailable || !got.err.SaysNotBegun() {
		t.Errorf("got %+v", got)
	}
}

func TestProgramThatDoesNotExistIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"no-such-program-anywhere", filepath.Join(dir, "gone"), plain, dir} {
		p, err := program.New(program.Config{Command: []string{command}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := p.Run(ctx); err == nil || !strings.Contains(err.Error(), command) {
			t.Errorf("%s: got %v", command, err)
		}
		w := newWorld(t)
		a := &agents.Agent{Agent: mesh.Agent{Entity: entity, Handler: p}, Program: p}
		if err := a.Run(ctx, w.node); err == nil {
			t.Errorf("%s: the agent runs without its program", command)
		}
	}
}

func TestProgramThatDoesNotReadIsUnavailable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProgram(t, "deaf", func(c *program.Config) {
		c.WriteTimeout = 20 * time.Millisecond
		c.Grace, c.TermGrace = time.Millisecond, time.Millisecond
	})
	stop := w.hostProgram(p, 2)

	// More than a pipe holds.
	for range 2 {
		got := w.send(entity, do("echo", strings.Repeat("x", 300_000)), sending{})
		if got.err == nil || got.err.Code != envelope.CodeUnavailable || !got.err.Retryable {
			t.Errorf("got %+v", got)
		}
	}
	if err := stop(); err != nil { // it ignores SIGTERM too
		t.Error(err)
	}
}

func TestProgramStopsWithEverythingItStarted(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"serve", "stubborn"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := newProgram(t, mode, func(c *program.Config) {
				if mode == "stubborn" {
					c.Grace, c.TermGrace = 10*time.Millisecond, 10*time.Millisecond
				}
			})
			stop := w.hostProgram(p, 1)
			var pids []int
			for _, what := range []string{"pid", "child"} {
				var result struct{ PID int }
				if err := json.Unmarshal([]byte(w.send(entity, do(what, ""), sending{}).payload), &result); err != nil || result.PID == 0 {
					t.Fatalf("%s: %v", what, err)
				}
				pids = append(pids, result.PID)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			for _, pid := range pids {
				until(t, fmt.Sprintf("process %d is gone", pid), func() bool { return !alive(pid) })
			}
			if h := p.Health(); h.Status != "unhealthy" || h.Details["program"] != "stopped" {
				t.Errorf("health %+v", h)
			}
		})
	}
}

// alive reports whether a process runs. A zombie does not.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(rest, []byte("Z"))
}

func TestProgramThatShutsItsOutputIsStoppedAndStartedAgain(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"serve", "stubborn"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			log := make(chan string, 64)
			p := newProgram(t, mode, func(c *program.Config) {
				c.StartWait = patience
				c.Logger = slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) { log <- string(b); return len(b), nil }), nil))
				if mode == "stubborn" {
					c.Grace, c.TermGrace = 10*time.Millisecond, 10*time.Millisecond
				}
			})
			w.hostProgram(p, 1)
			var pid struct{ PID int }
			if err := json.Unmarshal([]byte(w.send(entity, do("pid", ""), sending{}).payload), &pid); err != nil {
				t.Fatal(err)
			}
			if got := w.send(entity, do("shut", ""), sending{}); got.err == nil || got.err.Code != envelope.CodeUnavailable || !got.err.Retryable {
				t.Errorf("got %+v", got)
			}
			if got := w.send(entity, do("echo", "back"), sending{}); got.payload != `{"text":"back"}` {
				t.Errorf("got %+v", got)
			}
			until(t, "the first one is gone", func() bool { return !alive(pid.PID) })
			if h := p.Health(); h.Details["restarts"] != 1 || h.Details["last_exit"] != "the program closed its standard output" {
				t.Errorf("health %+v", h)
			}
			until(t, "it is logged before it is stopped", func() bool {
				line := <-log
				if strings.Contains(line, `msg="program ended"`) {
					t.Fatal("the end came first")
				}
				return strings.Contains(line, "program is being stopped") && strings.Contains(line, "closed its standard output")
			})
		})
	}
}

func TestProgramDrainsBeforeItStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProgram(t, "serve", nil)
	stop := w.hostProgram(p, 1) // what comes meanwhile waits, and is handed back
	var pid struct{ PID int }
	if err := json.Unmarshal([]byte(w.send(entity, do("pid", ""), sending{}).payload), &pid); err != nil {
		t.Fatal(err)
	}
	held := make(chan sent, 1)
	go func() { held <- w.send(entity, do("until_signal", ""), sending{}) }()
	until(t, "the program has the task", func() bool { return p.Health().Details["in_flight"] == 1 })

	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	until(t, "the agent takes no more tasks", func() bool {
		got := w.send(entity, do("echo", ""), sending{})
		return got.err != nil && (got.err.Code == envelope.CodeDraining || got.err.Code == envelope.CodeNoResponders)
	})
	syscall.Kill(pid.PID, syscall.SIGUSR1)
	if got := <-held; got.payload != `{"text":"signalled"}` {
		t.Errorf("got %+v", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestProgramStderrGoesLineByLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lines := make(chan string, 16)
	p := newProgram(t, "serve", func(c *program.Config) {
		c.Stderr = writerFunc(func(b []byte) (int, error) { lines <- string(b); return len(b), nil })
	})
	w.hostProgram(p, 1)
	select {
	case line := <-lines:
		if !strings.HasPrefix(line, "ready ") || strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") {
			t.Errorf("got %q", line)
		}
	case <-time.After(patience):
		t.Error("nothing came")
	}
}

// Where a line of standard error is truncated in the middle of a credential, its beginning
// does not reach the operator's terminal or log.
func TestProgramStderrIsTruncatedWithoutACredential(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const token = "hunter2-Kq7Zx2Wd9"
	lines := make(chan string, 16)
	p := newProgram(t, "serve", func(c *program.Config) {
		c.Redactor = new(secret.Redactor)
		c.Redactor.Add(secret.New(token))
		c.Command = []string{"/bin/sh", "-c", `printf "%4088s" >&2; echo ` + token + ` >&2; echo ` + token + ` >&2; cat`}
		c.Stderr = writerFunc(func(b []byte) (int, error) { lines <- string(b); return len(b), nil })
	})
	w.hostProgram(p, 1)
	for _, want := range []string{strings.Repeat(" ", 4088) + secret.Redacted + "\n", secret.Redacted + "\n"} {
		select {
		case line := <-lines:
			if line != want {
				t.Errorf("got %q", strings.TrimSpace(line))
			}
		case <-time.After(patience):
			t.Error("nothing came")
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
