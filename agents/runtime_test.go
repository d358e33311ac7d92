package agents_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// scripted is the offline model playing these turns.
func scripted(turns string) string {
	return `"model":{"provider":"custom","provider_id":"builtin","preferred":"script","params":{"extended":{"script":[` + turns + `]}}}`
}

// stubborn is a tool that does not notice when it is to stop, until the test
// ends.
func stubborn(t *testing.T) *tool.Registry {
	t.Helper()
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	reg := &tool.Registry{}
	if err := reg.Add(tool.Func(tool.Definition{Name: "stubborn", Description: "Does not stop."}, func(context.Context, struct{}) (struct{}, error) {
		<-over
		return struct{}{}, nil
	})); err != nil {
		t.Fatal(err)
	}
	return reg
}

// AAIF, Runtime Configuration: a runtime MUST abort after runtime.timeout_seconds
// and return a structured error, whatever the agent is doing.
func TestTimeoutSecondsEndsARunOnBothLanes(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	d := doc(t, scripted(`{"call":[{"name":"stubborn","arguments":{}}]},{"say":"late"}`)+
		`, "runtime": {"timeout_seconds": 1}, "tools": [{"name": "stubborn", "description": "Does not stop."}]`)
	l := newLane(t)
	a := newAgent(t, d, agents.Options{Tools: stubborn(t), Concurrency: 2})
	l.host(a, nil)
	until(t, "the agent answers", func() bool { _, err := l.client.Ping(l.ctx(), a.Entity); return err == nil })
	_, err := l.client.Send(l.ctx(), l.task(a.Entity, `{"text":"go"}`, ""), mesh.SendOptions{})
	if e := asError(err); e == nil || e.Code != envelope.CodeTimeout || e.Message == "" {
		t.Errorf("live: %v", err)
	}
	task := l.task(a.Entity, `{"text":"go"}`, "")
	l.submit(task)
	_, err = l.client.Result(l.ctx(), task.To, task.ID, mesh.ResultOptions{Follow: true})
	if e := asError(err); e == nil || e.Code != envelope.CodeTimeout || e.Message == "" {
		t.Errorf("durable: %v", err)
	}
}

func asError(err error) *envelope.Error {
	e, _ := err.(*envelope.Error)
	return e
}

// runtime.queue names who does an agent's durable tasks: workers of another
// queue take its tasks in and leave them.
func TestDurableTasksAreDoneByTheWorkersOfTheirQueue(t *testing.T) {
	t.Parallel()
	d := doc(t, echoModel+`, "runtime": {"async_execution": true, "queue": "heavy"}`)
	l := newLane(t)
	answering := func(text string, queues ...string) *agents.Agent {
		return newAgent(t, d, agents.Options{Concurrency: 4, WorkQueues: queues, Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
			return json.RawMessage(`{"by":"` + text + `"}`), nil
		})})
	}
	front := answering("front", "light", "other")
	if n := front.Notices[0]; n.Pointer != "/agent/runtime/queue" || !strings.Contains(n.Message, "heavy") {
		t.Errorf("notices %v", front.Notices)
	}
	l.host(front, nil)
	until(t, "its queue is told", func() bool {
		found, err := l.client.Discover(l.ctx(), front.Entity, 200*time.Millisecond)
		return err == nil && len(found) == 1 && found[0].Info.Metadata["work_queue"] == "heavy"
	})
	var tasks []*envelope.Envelope
	for i := range 8 {
		task := l.task(front.Entity, fmt.Sprintf(`{"text":"%d"}`, i), "")
		reply, err := l.client.Send(l.ctx(), task, mesh.SendOptions{})
		if err != nil || !strings.Contains(string(reply.Payload), `"job_id"`) {
			t.Fatalf("%v, %v", reply, err)
		}
		tasks = append(tasks, task)
	}
	l.host(answering("heavy", "heavy"), nil)
	for _, task := range tasks {
		if got := l.result(task); got != `{"by":"heavy"}` {
			t.Errorf("result %s", got)
		}
	}
}

// Both owners of a run that moved are in one trace, and the later one's span
// links to the one under which the run began.
func TestARunThatMovesStaysInItsTrace(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	l := newLane(t).shortLeases()
	spans := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	gate := make(chan struct{})
	entered := make(chan struct{}, 4)
	tools := func(wait bool) *tool.Registry {
		reg := &tool.Registry{}
		if err := reg.Add(tool.RepeatSafe(tool.Func(tool.Definition{Name: "look", Description: "Looks."}, func(ctx context.Context, _ struct{}) (struct{}, error) {
			if header, value := tool.TraceFrom(ctx); header != "x-trace" || !strings.HasPrefix(value, "00-") {
				t.Errorf("the tool is told %q, %q", header, value)
			}
			if wait {
				entered <- struct{}{}
				select {
				case <-gate:
				case <-ctx.Done():
				}
			}
			return struct{}{}, nil
		}))); err != nil {
			t.Fatal(err)
		}
		return reg
	}
	d := doc(t, scripted(`{"call":[{"name":"look","arguments":{}}]},{"say":"done"}`)+
		`, "tools": [{"name": "look", "description": "Looks."}], "telemetry": {"trace_context_header": "x-trace"}`)
	opts := agents.Options{Tools: tools(true), Telemetry: agents.Telemetry{Tracer: tp}}
	traced := func(a *agents.Agent) *agents.Agent { a.Tracer = tp; return a }
	first := l.host(traced(newAgent(t, d, opts)), nil)
	task := l.task("agent.test_agent", `{"text":"go"}`, "")
	l.submit(task)
	<-entered
	first.kill()
	opts.Tools = tools(false)
	l.host(traced(newAgent(t, d, opts)), nil)
	if got := l.result(task); !strings.Contains(got, "done") {
		t.Errorf("result %s", got)
	}
	close(gate)
	var runs []tracetest.SpanStub
	until(t, "both owners' spans have ended", func() bool {
		runs = nil
		for _, s := range spans.GetSpans() {
			if s.Name == "aaif.agent.run" {
				runs = append(runs, s)
			}
		}
		return len(runs) == 2
	})
	epochs := map[int64]tracetest.SpanStub{}
	for _, s := range runs {
		for _, kv := range s.Attributes {
			if kv.Key == "aee.run.epoch" {
				epochs[kv.Value.AsInt64()] = s
			}
		}
	}
	began, later := epochs[1], epochs[2]
	if !began.SpanContext.IsValid() || !later.SpanContext.IsValid() || len(later.Links) != 1 || later.Links[0].SpanContext.SpanID() != began.SpanContext.SpanID() {
		t.Errorf("owners %+v\n%+v", began, later)
	}
}

// The level of a document's log lines is its own; what they must not say is not.
func TestALogOfItsOwnLevelTellsNoSecretsEither(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	redactor := &secret.Redactor{}
	redactor.Add(secret.New("the-key-of-a-provider"))
	a := newAgent(t, doc(t, echoModel+`, "telemetry": {"log_level": "debug"}`), agents.Options{Redactor: redactor, Telemetry: agents.Telemetry{
		Logger: func(level slog.Level) *slog.Logger {
			return slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level}))
		},
	}})
	a.Logger.Debug("said", "what", "the-key-of-a-provider is wrong")
	if !strings.Contains(log.String(), "level=DEBUG") || strings.Contains(log.String(), "the-key") {
		t.Errorf("log: %s", &log)
	}
}

// A validator shortens what it quotes of an answer, perhaps in the middle of a credential.
func TestErrorsToSendersHoldNoPartOfACredential(t *testing.T) {
	t.Parallel()
	redactor := &secret.Redactor{}
	redactor.Add(secret.New("the-key-of-a-provider"))
	for before := 180; before < 200; before += 4 {
		answer := modeltest.Turn{Text: `{"` + strings.Repeat("x", before) + `the-key-of-a-provider":1}`}
		w := newWorld(t)
		a := newAgent(t, doc(t, `"io": {"output_schema": {"type": "object", "additionalProperties": false}}`), agents.Options{Model: modeltest.New(answer, answer), Redactor: redactor})
		w.host(a)
		got := w.send(a.Entity, `{"text":"go"}`, sending{})
		if got.err == nil || got.err.Code != envelope.CodeOutputSchema || strings.Contains(got.err.Message, "the-") {
			t.Errorf("with a name of %d bytes before it: %+v", before, got.err)
		}
	}
}

// An error's own text goes to the sender, and to the callers above; it is redacted as the log is,
// whether a model, a Go handler or a program does the work.
func TestErrorsToSendersHoldNoCredentials(t *testing.T) {
	t.Parallel()
	redactor := &secret.Redactor{}
	redactor.Add(secret.New("the-key-of-a-provider"))
	fail := mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		e := envelope.Errorf("E_BILLING", "the-key-of-a-provider is wrong: %w", io.ErrUnexpectedEOF)
		e.EvidenceRefs = []string{"https://x.example/?k=the-key-of-a-provider"}
		e.Details = []envelope.Member{{Name: "said", Value: json.RawMessage(`"the-key-of-\u0061-provider"`)}}
		return nil, e
	})
	answer := modeltest.Turn{Text: `{"the-key-of-a-provider":1}`}
	for code, opts := range map[envelope.Code]agents.Options{
		"E_BILLING":               {Handler: fail},
		envelope.CodeOutputSchema: {Model: modeltest.New(answer, answer)},
	} {
		opts.Redactor = redactor
		w := newWorld(t)
		a := newAgent(t, doc(t, `"io": {"output_schema": {"type": "object", "additionalProperties": false}}`), opts)
		w.host(a)
		got := w.send(a.Entity, `{"text":"go"}`, sending{})
		if got.err == nil {
			t.Errorf("%s: the sender gets %s", code, got.payload)
			continue
		}
		all := got.err.Message + strings.Join(got.err.EvidenceRefs, " ")
		for _, d := range got.err.Details {
			all += d.Name + string(d.Value)
		}
		if got.err.Code != code || strings.Contains(all, "the-key") || !strings.Contains(got.err.Message, secret.Redacted) {
			t.Errorf("the sender gets %s: %s", got.err.Code, all)
		}
	}
}
