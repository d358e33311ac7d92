package agents_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/anthropic"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// speech is a model that streams the words it is given, one at a time, and ends
// its answer when the channel is closed.
type speech struct {
	asked chan []model.Message
	words chan string
}

func newSpeech() *speech { return &speech{make(chan []model.Message, 8), make(chan string)} }

func (s *speech) Generate(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	s.asked <- slices.Clone(req.Messages)
	var text strings.Builder
	for {
		select {
		case word, more := <-s.words:
			if !more {
				return &model.Response{Message: model.Assistant(text.String()), Finish: model.FinishStop}, nil
			}
			text.WriteString(word)
			if err := onDelta(model.Delta{Text: word}); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// texts returns the texts that were streamed of a task, with "!" before a
// restart, and whether the task has ended.
func (l *lane) texts(task *envelope.Envelope) (told []string, ended bool) {
	for _, e := range l.replies(task) {
		var p struct {
			Text    string
			Restart bool
		}
		switch {
		case e.Type != envelope.TypeStream:
			ended = true
		case json.Unmarshal(e.Payload, &p) == nil && p.Restart:
			told = append(told, "!"+p.Text)
		default:
			told = append(told, p.Text)
		}
	}
	return told, ended
}

// A run is paused while the model generates and resumed later, by another
// worker: streamed text is not streamed again, or is replaced if the model now
// generates another text.
func TestPauseAndResumeInTheMiddleOfATurn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		again []string
		want  []string
	}{
		"the same":         {[]string{"one ", "two ", "three"}, []string{"one ", "two ", "three"}},
		"something else":   {[]string{"one ", "more ", "time"}, []string{"one ", "two ", "!one more ", "time"}},
		"less than it was": {[]string{"one "}, []string{"one ", "two ", "!one "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLane(t)
			first, second := newSpeech(), newSpeech()
			w := l.host(newAgent(t, doc(t, ``), agents.Options{Model: first}), nil)
			task := l.task("agent.test_agent", `{"text":"go"}`, `{"stream":true}`)
			l.submit(task)
			<-first.asked
			first.words <- "one "
			first.words <- "two "
			until(t, "two words are told", func() bool { told, _ := l.texts(task); return len(told) == 2 })
			if _, err := l.client.Command(l.ctx(), task.To, intents.PauseTask{Target: intents.Target{ID: task.ID}}); err != nil {
				t.Fatal(err)
			}
			paused := l.until(task, "the run is paused", func(cp *state.Checkpoint) bool { return cp.Doc.Status == aaif.RunPaused })
			if paused.Mesh.Told != "one two " || paused.Doc.Iteration.Int64() != 0 {
				t.Errorf("told %q after %s turns", paused.Mesh.Told, paused.Doc.Iteration)
			}
			if err := w.stop(); err != nil {
				t.Fatal(err)
			}
			l.host(newAgent(t, doc(t, ``), agents.Options{Model: second}), nil)
			resume(t, l, task)
			<-second.asked
			for _, word := range c.again {
				second.words <- word
			}
			close(second.words)
			if got, want := l.result(task), `{"text":"`+strings.Join(c.again, "")+`"}`; got != want {
				t.Errorf("result %s, want %s", got, want)
			}
			until(t, "the reply is stored", func() bool { _, ended := l.texts(task); return ended })
			if told, _ := l.texts(task); !slices.Equal(told, c.want) {
				t.Errorf("told %q, want %q", told, c.want)
			}
		})
	}
}

// resume sends the command until a worker of the agent has received it.
func resume(t *testing.T, l *lane, task *envelope.Envelope) {
	t.Helper()
	if _, err := l.client.Command(l.ctx(), task.To, intents.ResumeTask{Target: intents.Target{ID: task.ID}}); err != nil {
		t.Fatal(err)
	}
}

// A steering message that arrives while the model generates is used: the model
// takes another turn with it.
func TestSteeringByCommand(t *testing.T) {
	t.Parallel()
	l := newLane(t)
	s := newSpeech()
	l.host(newAgent(t, doc(t, ``), agents.Options{Model: s}), nil)
	task := l.task("agent.test_agent", `{"text":"go"}`, `{"stream":true}`)
	l.submit(task)
	<-s.asked
	s.words <- "one"
	got, err := l.client.Command(l.ctx(), task.To, intents.SteerTask{Target: intents.Target{ID: task.ID}, Text: "in French"})
	if err != nil || !got.Steered {
		t.Fatalf("%+v, %v", got, err)
	}
	close(s.words)
	asked := <-s.asked
	var said []string
	for _, m := range asked[1:] {
		said = append(said, string(m.Role)+" "+m.Content)
	}
	if want := []string{"user go", "assistant one", "user in French"}; !slices.Equal(said, want) {
		t.Errorf("the model was asked %q, want %q", said, want)
	}
	if got := l.result(task); got != `{"text":""}` {
		t.Errorf("result %s", got)
	}
	var steered *state.Checkpoint
	for _, cp := range l.history(task) {
		if cp.Mesh.Step.Kind == state.StepSteer && len(cp.Doc.Conversation) == 4 {
			steered = cp
		}
	}
	if steered == nil || steered.Doc.Conversation[3].Content != "in French" || len(steered.Mesh.Steering) != 0 {
		t.Errorf("no checkpoint has the message before the model had it: %+v", steered)
	}
}

// Where no turns read it, a steering message is refused: before the task begins, and while
// it runs.
func TestSteeringWithoutTurns(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 8)
	held := mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	for name, c := range map[string]struct {
		doc    string
		opts   agents.Options
		steers bool
	}{
		"a Go handler":            {opts: agents.Options{Handler: held}},
		"a Go handler that reads": {opts: agents.Options{Handler: held, Steers: true}, steers: true},
		"a pipeline":              {doc: `"orchestration":{"subagents":[{"ref":"agent.member","alias":"m"}],"pipeline":["m"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLane(t)
			l.host(newAgent(t, doc(t, ``), agents.Options{As: "agent.member", Handler: held}), nil)
			l.host(newAgent(t, doc(t, c.doc), c.opts), nil)
			check := func(when string, task *envelope.Envelope) {
				t.Helper()
				got, err := l.client.Command(l.ctx(), task.To, intents.SteerTask{Target: intents.Target{ID: task.ID, Durable: true}, Text: "in French"})
				var refused *envelope.Error
				switch {
				case c.steers && (err != nil || !got.Steered):
					t.Errorf("%s: %+v, %v", when, got, err)
				case !c.steers && (!errors.As(err, &refused) || refused.Code != envelope.CodeDenied || !strings.Contains(refused.Message, "cannot be steered")):
					t.Errorf("%s: %+v, %v", when, got, err)
				}
			}
			task := l.task("agent.test_agent", `{"text":"go"}`, ``)
			check("before it begins", task)
			l.submit(task)
			<-begun
			check("while it runs", task)
		})
	}
}

// A transient failure is retried by the document's policy, from the last
// checkpoint: tools are not called again.
func TestRetriesGoOnWhereTheRunStands(t *testing.T) {
	t.Parallel()
	for block, want := range map[string]struct {
		result string
		asked  int64
	}{
		`"runtime": {"max_retries": 2, "retry_backoff": "fixed"}`: {`{"text":"done"}`, 3},
		`"runtime": {"max_retries": 0}`:                           {"E_UNAVAILABLE", 2},
	} {
		t.Run(want.result, func(t *testing.T) {
			t.Parallel()
			l := newLane(t)
			done, asked := new(effects), new(atomic.Int64)
			fake := modeltest.New(calls(call("1", "pay", `{}`)), says("done"))
			m := model.Func(func(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
				if asked.Add(1) == 2 {
					return nil, &model.Error{Kind: model.ErrUnavailable, Message: "not now", RetryAfter: time.Millisecond}
				}
				return fake.Generate(ctx, req, onDelta)
			})
			a := newAgent(t, doc(t, payTools+`, `+block), agents.Options{Model: m, Tools: done.tools(t)})
			a.Retry.Base = 1 // the test does not wait
			l.host(a, nil)
			task := l.task(a.Entity, `{"text":"go"}`, "")
			l.submit(task)
			if got := l.result(task); got != want.result || asked.Load() != want.asked {
				t.Errorf("%s after %d turns, want %s after %d", got, asked.Load(), want.result, want.asked)
			}
			if got := done.all(); len(got) != 1 {
				t.Errorf("calls %v", got)
			}
		})
	}
}

// A key that cannot be read for a moment is a transient failure like one of the provider's.
func TestARunGoesOnWhenItsKeyCanBeReadAgain(t *testing.T) {
	t.Parallel()
	l := newLane(t)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"done"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":2}}`)
	}))
	t.Cleanup(api.Close)
	reads := new(atomic.Int64)
	m, err := anthropic.New(anthropic.Config{BaseURL: api.URL, Key: func(context.Context) (string, error) {
		if reads.Add(1) == 1 {
			return "", model.Errorf(model.ErrUnavailable, "the vault does not answer")
		}
		return "k", nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, doc(t, `"model": {"provider": "anthropic", "preferred": "m"}, "io": {"streaming": false}, "runtime": {"max_retries": 2, "retry_backoff": "fixed"}`), agents.Options{Model: m})
	a.Retry.Base = 1 // the test does not wait
	l.host(a, nil)
	task := l.task(a.Entity, `{"text":"go"}`, "")
	l.submit(task)
	if got := l.result(task); got != `{"text":"done","usage":{"input_tokens":1,"output_tokens":2}}` || reads.Load() != 2 {
		t.Errorf("%s after %d reads of the key", got, reads.Load())
	}
}

// A program's task is repeated after its worker has crashed, and again after
// the program has crashed, as the same run with a higher attempt each time.
func TestProgramsSeeTheirAttempt(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	l := newLane(t).shortLeases()
	dir := t.TempDir()
	first := l.host(newAgent(t, doc(t, echoModel), agents.Options{Program: newProgram(t, "serve", nil)}), nil)
	payload, err := json.Marshal(map[string]string{"do": "attempt", "text": dir})
	if err != nil {
		t.Fatal(err)
	}
	task := l.task("agent.test_agent", string(payload), "")
	// A task that is new, as its consumer tells, may begin before its claim is written.
	work, err := jetstream.WorkConsumer(subject.Map{}, string(task.Priority), task.To, shortLease)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.EnsureConsumer(l.ctx(), l.js(l.conn), subject.Map{}, work, true); err != nil {
		t.Fatal(err)
	}
	until(t, "the consumer is older than the task", func() bool {
		cons, err := l.js(l.conn).Consumer(l.ctx(), jetstream.StreamWork, work.Config.Durable)
		return err == nil && time.Since(cons.CachedInfo().Created) > 100*time.Millisecond
	})
	l.submit(task)
	run := state.RunID(task.To, task.ID)
	seen := func(n string) bool {
		_, err := os.Stat(filepath.Join(dir, run+"."+n))
		return err == nil
	}
	until(t, "the program has the task", func() bool { return seen("1") })
	first.kill()
	l.host(newAgent(t, doc(t, echoModel), agents.Options{Program: newProgram(t, "serve", nil)}), nil)
	if got := l.result(task); got != `{"attempt":3}` || !seen("2") {
		t.Errorf("result %s", got)
	}
}

// A run that another platform has completed in part is not started anew with a
// program.
func TestAProgramTakesNoRunUpInTheMiddle(t *testing.T) {
	t.Parallel()
	l := newLane(t)
	a := newAgent(t, doc(t, echoModel), agents.Options{Program: newProgram(t, "serve", nil)})
	l.host(a, nil)
	until(t, "the agent answers", func() bool {
		found, err := l.client.Discover(l.ctx(), a.Entity, time.Second)
		return err == nil && len(found) == 1
	})
	for completed, want := range map[bool]string{false: `{"echo":`, true: "1 of its steps were completed"} {
		c := &state.Checkpoint{Doc: aaif.State{
			Standard: "SC-006", StateID: state.RunID("agent.x", t.Name()), AgentID: state.AgentID(a.Entity), RunID: state.RunID("agent.y", t.Name()), CheckpointAt: state.Time(time.Now()), Status: aaif.RunPaused,
			Conversation: []aaif.Message{{Role: aaif.MessageUser, Content: `{"do":"echo","text":"hi"}`}},
		}}
		if completed {
			c.Doc.PipelinePosition = &aaif.PipelinePosition{CurrentStep: "write", CompletedSteps: []string{"fetch"}}
		}
		if id := a.AgentID; id != "" {
			c.Doc.AgentID = id
		}
		receipt, err := l.client.Fork(l.ctx(), c, state.ForkOf{})
		if err != nil {
			t.Fatal(err)
		}
		reply, err := l.client.Result(l.ctx(), a.Entity, receipt.TaskID, mesh.ResultOptions{Follow: true})
		if completed != (err != nil && strings.Contains(err.Error(), want)) {
			t.Errorf("completed %t: %v, %v", completed, reply, err)
		}
	}
}

// Document fields that only the durable lane can keep.
func TestTheDocumentOnTheDurableLane(t *testing.T) {
	t.Parallel()
	a := newAgent(t, doc(t, echoModel+`, "runtime": {"max_retries": 4, "retry_backoff": "linear", "concurrency": 3, "async_execution": true}`), agents.Options{})
	if want := (mesh.RetryPolicy{Max: 4, Backoff: mesh.BackoffLinear}); a.Retry != want || a.MeshConcurrency != 3 || !a.Async || len(a.Notices) != 0 {
		t.Errorf("retry %+v, concurrency %d, async %v, notices %v", a.Retry, a.MeshConcurrency, a.Async, a.Notices)
	}
	if a := newAgent(t, doc(t, echoModel+`, "io": {"mode": "async"}`), agents.Options{}); !a.Async || len(a.Notices) != 0 {
		t.Errorf("io.mode async: async %v, notices %v", a.Async, a.Notices)
	}
	if a := newAgent(t, doc(t, echoModel), agents.Options{}); a.Retry.Max != 2 || a.MeshConcurrency != 1 || a.Async {
		t.Errorf("by default: retry %+v, concurrency %d, async %v", a.Retry, a.MeshConcurrency, a.Async)
	}
	// Without the lane it is served all the same.
	w := newWorld(t)
	w.host(a)
	if got := w.send(a.Entity, `{"text":"one"}`, sending{}); !strings.HasPrefix(got.payload, `{"text":"one"`) {
		t.Errorf("live: %+v", got)
	}
}

// An agent whose state must be encrypted is not hosted where it would not be.
func TestEncryptedStateNeedsAKey(t *testing.T) {
	t.Parallel()
	const encrypt = echoModel + `, "compliance": {"pii_handling": "encrypt"}`
	keys, err := state.NewKeyring(state.Key{Secret: make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	l := newLane(t)
	a := newAgent(t, doc(t, encrypt), agents.Options{})
	if got := pointers(a.Notices); got["/agent/compliance/pii_handling"] != aaif.SeverityWarning {
		t.Errorf("notices without a key: %v", a.Notices)
	}
	if err := a.Run(l.ctx(), l.client); err == nil || !strings.Contains(err.Error(), "pii_handling encrypt") {
		t.Errorf("hosted without a key: %v", err)
	}
	if _, err := agents.New(doc(t, echoModel+`, "compliance": {"pii_handling": "encrypt", "safety_level": "strict"}`), agents.Options{}); err == nil {
		t.Error("strict, and no key: no error")
	}

	a = newAgent(t, doc(t, encrypt), agents.Options{StateKeys: keys})
	if got := pointers(a.Notices); got["/agent/compliance/pii_handling"] != aaif.SeverityNote {
		t.Errorf("notices with a key: %v", a.Notices)
	}
	l.host(a, nil)
	task := l.task(a.Entity, `{"text":"a secret"}`, "")
	l.submit(task)
	if got := l.result(task); !strings.HasPrefix(got, `{"text":"a secret"`) {
		t.Errorf("result %s", got)
	}
	rec, err := jetstream.NewStates(l.js(l.conn), subject.Map{}).Get(l.ctx(), state.ID{Entity: task.To, Run: state.RunID(task.To, task.ID)})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(rec.Data), "a secret") {
		t.Error("the stored state is readable")
	}
	if cp, err := (state.Codec{Seal: keys}).Decode(rec.Data); err != nil || cp.Doc.Conversation[1].Content != "a secret" {
		t.Errorf("with the key: %+v, %v", cp, err)
	}
}
