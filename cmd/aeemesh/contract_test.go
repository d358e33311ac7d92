package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// commandsForTest are all commands that can be run, hidden ones apart.
func commandsForTest() []*cobra.Command {
	env := func(string) string { return "" }
	a := newApp(nil, &strings.Builder{}, &strings.Builder{}, env)
	var out []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" {
			return
		}
		out = append(out, c)
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(a.root())
	return out
}

// printedFailure is the failure that a command has printed with --json: the
// last line of stdout, all lines of which are JSON.
func printedFailure(t *testing.T, what, stdout string) *outcome.Failure {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("%s: stdout has a line that is no JSON: %q", what, line)
			return nil
		}
	}
	var last struct {
		Error *outcome.Failure `json:"error"`
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Error == nil {
		t.Errorf("%s: stdout does not end with an error: %q", what, stdout)
		return nil
	}
	if last.Error.Code == "" || last.Error.Message == "" || strings.HasPrefix(last.Error.Message, string(last.Error.Code)) {
		t.Errorf("%s: %+v", what, *last.Error)
	}
	return last.Error
}

// Fault 18 of the operators' review: wrong usage of any command is reported to
// programs, in one form.
func TestEveryCommandTellsProgramsOfWrongUsage(t *testing.T) {
	t.Parallel()
	for _, c := range commandsForTest() {
		args := append(strings.Fields(c.CommandPath())[1:], "--no-such-flag", "--json")
		code, out, words := runForTest(args...)
		f := printedFailure(t, c.CommandPath(), out)
		if code != outcome.Usage || f == nil || f.Code != outcome.CodeUsage || f.Hint == "" || !strings.Contains(words, "error: ") {
			t.Errorf("%v: exit %d, %s", args, code, out)
		}
	}
}

// argumentsForTest are arguments that a command understands.
func argumentsForTest(c *cobra.Command, dir string) (args []string) {
	values := map[string]string{"ENTITY": "agent.none", "RUN": "0f4c0f4c-0000", "ID": "01JD3YZ8M4XXXXXXXXXXXXXXXX", "CORR": "01JD3YZ8M4XXXXXXXXXXXXXXXX", "KID": "nokey", "TEXT": "hi",
		"FILE": filepath.Join(dir, "none.yaml"), "FILE|-": filepath.Join(dir, "none.json"), "TASK": "01JD3YZ8M4XXXXXXXXXXXXXXXX", "SEQ": "7", "NUMBER": "7", "FROM": "1", "TO": "2",
		"DOCUMENT": filepath.Join(dir, "none.yaml"), "MODEL": "openai/none", "PAYLOAD": "hi", "EXPRESSION": "true"}
	for _, word := range strings.Fields(c.Use)[1:] {
		if strings.HasPrefix(word, "[") {
			continue
		}
		if v, ok := values[strings.TrimSuffix(word, "...")]; ok {
			args = append(args, v)
		}
	}
	return args
}

// Fault 18 of the operators' review: every failure is reported to programs in
// one form, with the exit status of its code.
func TestEveryCommandThatFailsTellsPrograms(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	dir := t.TempDir()
	env := map[string]string{"NATS_URL": "nats://127.0.0.1:1", "HOME": dir, "USER": "ada"}
	endless := []string{"aeemesh up", "aeemesh demo", "aeemesh soak"}
	exits := map[int]int{}
	for _, c := range commandsForTest() {
		if slices.Contains(endless, c.CommandPath()) || strings.HasPrefix(c.CommandPath(), "aeemesh bench") { // benches start themselves
			continue
		}
		args := append(strings.Fields(c.CommandPath())[1:], argumentsForTest(c, dir)...)
		args = append(args, "--json", "--timeout", "200ms")
		if c.CommandPath() == "aeemesh schema simulate" { // it needs no server, and a million requests by default
			args = append(args, "--count", "1000", "--days", "10")
		}
		var out, words strings.Builder
		code := run(t.Context(), args, strings.NewReader(""), &out, &words, func(name string) string { return env[name] })
		exits[code]++
		if code == outcome.OK {
			if c.Annotations[session.GroupConnect] != "" && c.Parent().Name() != "keys" && c.Name() != "validate" { // these connect if they are told to
				t.Errorf("%v succeeds without a server: %s", args, out.String())
			}
			continue
		}
		f := printedFailure(t, strings.Join(args, " "), out.String())
		if f == nil {
			continue
		}
		if (code == outcome.Usage) != (f.Code == outcome.CodeUsage) || (code == outcome.NotThere) != (f.Code == envelope.CodeNotFound) {
			t.Errorf("%v: exit %d with %+v", args, code, *f)
		}
		if !strings.Contains(words.String(), "error: ") && !strings.Contains(f.Message, "a check failed") {
			t.Errorf("%v: no word for people: %q", args, words.String())
		}
	}
	if exits[outcome.Failed] < 20 || exits[outcome.NotThere] < 3 {
		t.Errorf("too few got to their work: %v", exits)
	}
}

// The exit statuses and codes of docs/cli.md, with a server.
func TestExitStatusesTellFailuresApart(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	if err := applyTopology(srv); err != nil {
		t.Fatal(err)
	}
	conn := natstest.Conn(t, srv)
	node, err := mesh.New(conn, mesh.Config{Drain: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	serving, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	agent := mesh.Agent{Entity: "agent.moody", Concurrency: 4, Ready: func() { close(ready) }, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		var p struct{ Text string }
		_ = json.Unmarshal(task.Envelope.Payload, &p)
		if p.Text == "wait" {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return nil, envelope.Errorf(envelope.Code(p.Text), "as you wish")
	})}
	go func() { ended <- node.Serve(serving, agent) }()
	<-ready
	t.Cleanup(func() { stop(); <-ended })
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte("aaif: nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"no.json": "no envelope", "half.json": `{"v":"1","type":"task"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		exit int
		code envelope.Code
		args string
	}{
		{1, "E_OF_AN_AGENT", "send agent.moody E_OF_AN_AGENT"},
		{1, envelope.CodeUnavailable, "send agent.moody E_UNAVAILABLE"},
		{1, outcome.CodeFailed, "validate " + filepath.Join(dir, "bad.yaml")},
		{1, outcome.CodeFailed, "plan --check --entity agent.moody"},
		{2, outcome.CodeUsage, "send"},
		{2, outcome.CodeUsage, "nonsense"},
		{3, envelope.CodeNoResponders, "send agent.none hi"},
		{3, envelope.CodeNoResponders, "ask agent.none hi"},
		{3, envelope.CodeNoResponders, "agents ping agent.none"},
		{3, envelope.CodeNoResponders, "agents describe agent.none --wait 50ms"},
		{3, envelope.CodeNotFound, "result 01JD3YZ8M4XXXXXXXXXXXXXXXX agent.none"},
		{3, envelope.CodeNotFound, "result 01JD3YZ8M4XXXXXXXXXXXXXXXX"},
		{3, envelope.CodeNotFound, "runs show nothing"},
		{3, envelope.CodeNotFound, "runs cancel nothing"},
		{3, envelope.CodeNotFound, "inbox 01JD3YZ8M4XXXXXXXXXXXXXXXX"},
		{3, envelope.CodeNotFound, "inbox order.4711"},
		{2, outcome.CodeUsage, "inbox agent.moody"},
		{2, outcome.CodeUsage, "inbox human."},
		{3, envelope.CodeNotFound, "dead show 7"},
		{3, envelope.CodeNotFound, "tree 01JD3YZ8M4XXXXXXXXXXXXXXXX"},
		{3, envelope.CodeNotFound, "keys show nokey"},
		{3, envelope.CodeNotFound, "validate " + filepath.Join(dir, "none.yaml")},
		{3, envelope.CodeNotFound, "send agent.moody hi --sign nokey"},
		{3, envelope.CodeNotFound, "agents list --context none"},
		{4, envelope.CodeDenied, "send agent.moody E_DENIED"},
		{4, envelope.CodeBusy, "send agent.moody E_BUSY"},
		{4, envelope.CodeSigRequired, "send agent.moody E_SIG_REQUIRED"},
		{4, envelope.CodeInputSchema, "ask agent.moody E_INPUT_SCHEMA"},
		{4, envelope.CodeInvalidEnvelope, "send --envelope " + filepath.Join(dir, "no.json")},
		{4, envelope.CodeInvalidEnvelope, "send --envelope " + filepath.Join(dir, "half.json")},
		{4, envelope.CodeInvalidEnvelope, "envelope convert " + filepath.Join(dir, "half.json")},
		{1, outcome.CodeFailed, "envelope validate " + filepath.Join(dir, "half.json")},
		{5, envelope.CodeTimeout, "inbox --follow --timeout 1s"},
		{5, envelope.CodeTimeout, "send agent.moody wait --timeout 1s"},
		{5, envelope.CodeTimeout, "ask agent.moody wait --timeout 1s"},
		{5, envelope.CodeTimeout, "send agent.none hi --durable --timeout 1s"},
		{5, envelope.CodeTimeout, "result 01JD3YZ8M4XXXXXXXXXXXXXXXX agent.none --follow --timeout 1s"},
	} {
		env := map[string]string{"NATS_URL": srv.ClientURL(), "HOME": dir, "USER": "ada"}
		if strings.Contains(tt.args, "--context") {
			delete(env, "NATS_URL")
		}
		var out, words strings.Builder
		exit := run(t.Context(), append(strings.Fields(tt.args), "--json"), strings.NewReader(""), &out, &words, func(name string) string { return env[name] })
		f := printedFailure(t, tt.args, out.String())
		if exit != tt.exit || f == nil || f.Code != tt.code {
			t.Errorf("%s: exit %d, want %d with %s: %s%s", tt.args, exit, tt.exit, tt.code, out.String(), words.String())
		}
		if strings.HasPrefix(tt.args, "send agent.moody E_") && !strings.Contains(out.String(), `"envelope":{"v":"1"`) {
			t.Errorf("%s: the error envelope is not there: %s", tt.args, out.String())
		}
	}
}

// A wait that a signal ended is reported as interrupted.
func TestAnInterruptedWaitIsToldAsOne(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	if err := applyTopology(srv); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	env := map[string]string{"NATS_URL": srv.ClientURL(), "HOME": t.TempDir(), "USER": "ada"}
	var out natstest.Buffer
	ended := make(chan int)
	go func() {
		ended <- run(ctx, []string{"send", "agent.none", "hi", "--durable", "--json"}, strings.NewReader(""), &out, &natstest.Buffer{}, func(name string) string { return env[name] })
	}()
	a := &app{App: &session.App{}}
	js, err := a.JetStream(natstest.Conn(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for stored := false; !stored; <-tick.C {
		s, err := js.Stream(t.Context(), jetstream.StreamWork)
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Info(t.Context())
		stored = err == nil && info.State.Msgs == 1
	}
	stop()
	exit := <-ended
	if f := printedFailure(t, "send", out.String()); exit != outcome.Failed || f == nil || f.Code != outcome.CodeInterrupted {
		t.Errorf("exit %d: %s", exit, out.String())
	}
}

// agents list tells intents as a list (section 4 of the operators' review).
func TestAgentsListTellsIntentsAsAList(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	if err := applyTopology(srv); err != nil {
		t.Fatal(err)
	}
	servesHostile(t, srv)
	var out strings.Builder
	env := map[string]string{"NATS_URL": srv.ClientURL(), "HOME": t.TempDir(), "USER": "ada"}
	if exit := run(t.Context(), []string{"agents", "list", "--json"}, strings.NewReader(""), &out, &strings.Builder{}, func(name string) string { return env[name] }); exit != exitOK {
		t.Fatalf("exit %d", exit)
	}
	for line := range strings.Lines(out.String()) {
		var l struct{ Intents []string }
		if err := json.Unmarshal([]byte(line), &l); err != nil || !slices.Contains(l.Intents, "aee.status.ping") {
			t.Errorf("%v: %s", err, line)
		}
	}
}

// A worker that announces itself and answers nothing hides no other's health.
func TestASilentWorkerHidesNoOthersHealth(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	if err := applyTopology(srv); err != nil {
		t.Fatal(err)
	}
	servesHostile(t, srv)
	conn := natstest.Conn(t, srv)
	if _, err := conn.Subscribe("agent.aardvark", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	service, err := micro.AddService(conn, micro.Config{Name: "agent-aardvark", Version: "1.0.0", Metadata: map[string]string{mesh.MetaEntity: "agent.aardvark", mesh.MetaPrefix: ""}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = service.Stop() })
	var out strings.Builder
	env := map[string]string{"NATS_URL": srv.ClientURL(), "HOME": t.TempDir(), "USER": "ada"}
	natstest.Eventually(t, "all four agents are listed", func() bool { // on a busy machine one may answer too late
		out.Reset()
		if exit := run(t.Context(), []string{"agents", "list", "--json"}, strings.NewReader(""), &out, &strings.Builder{}, func(name string) string { return env[name] }); exit != exitOK {
			t.Fatalf("exit %d", exit)
		}
		return strings.Count(out.String(), `"entity":"agent.`) == 4
	})
	for _, want := range []string{`"agent.aardvark".*"status":"unknown","reason":"no answer"`, `"agent.fails".*"status":"healthy"`, `"agent.json".*"status":"healthy"`, `"agent.text".*"status":"healthy"`} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want outcome.Outcome
	}{
		{nil, outcome.Outcome{}},
		{errors.New("x"), outcome.Outcome{Code: outcome.CodeFailed, Exit: 1}},
		{outcome.Hinted(outcome.NotFound("no %s", "key"), "x"), outcome.Outcome{Code: envelope.CodeNotFound, Exit: 3}},
		{fmt.Errorf("x: %w", jetstream.ErrDenied), outcome.Outcome{Code: envelope.CodeDenied, Exit: 4}},
		{errors.Join(errors.New("x"), jetstream.ErrFull), outcome.Outcome{Code: outcome.CodeFull, Exit: 4}},
		{outcome.Stopped(context.DeadlineExceeded, "x"), outcome.Outcome{Code: envelope.CodeTimeout, Exit: 5}},
		{outcome.Stopped(context.Canceled, "x"), outcome.Outcome{Code: outcome.CodeInterrupted, Exit: 1}},
		{outcome.Remote(envelope.Errorf(envelope.CodeReplay, "x")), outcome.Outcome{Code: envelope.CodeReplay, Exit: 4}},
		{outcome.ErrQuiet, outcome.Outcome{Code: outcome.CodeFailed, Exit: 1}},
	} {
		if got := outcome.Of(tt.err); got != tt.want {
			t.Errorf("%v: %+v, want %+v", tt.err, got, tt.want)
		}
	}
}

// docs/cli.md names every code of this program, and no status that there is not.
func TestTheContractIsWrittenDown(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []envelope.Code{outcome.CodeFailed, outcome.CodeUsage, outcome.CodeInterrupted, outcome.CodeConflict, outcome.CodeFull, outcome.CodeUncertain} {
		if !strings.Contains(string(text), "\n| `"+string(code)+"` | ") {
			t.Errorf("%s is not in the table of codes", code)
		}
	}
	for status := outcome.OK; status <= outcome.Late; status++ {
		if !strings.Contains(string(text), fmt.Sprintf("\n| %d | ", status)) {
			t.Errorf("status %d is not in the table", status)
		}
	}
	for _, info := range envelope.Codes {
		exit := outcome.Of(&envelope.Error{Code: info.Code}).Exit
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "| ") && len(line) > 3 && line[2] >= '3' && line[2] <= '5' && line[3] == ' ' && strings.Contains(line, "`"+string(info.Code)+"`") && int(line[2]-'0') != exit {
				t.Errorf("%s ends with status %d, and the page says: %s", info.Code, exit, line)
			}
		}
	}
}
