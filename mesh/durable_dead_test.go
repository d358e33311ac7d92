package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	headers "github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

func (r *durableRig) dead() *jetstream.Dead { return jetstream.NewDead(r.js(r.nc), r.m) }

// A message is delivered again to a worker that cannot verify it: the key is not known
// there. The run exists, and so another worker has verified its task: it goes on.
func TestARunGoesOnWhereItsTaskCannotBeVerified(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	k := newKeys(t)
	r := newDurableRig(t).shortLeases()
	line, g := natstest.NewCable(t), newGate(t)
	noSweep := func(d *mesh.Durable) { d.Sweep = -1 }
	known := k.verifier()
	known.Mode = sign.Required
	first := r.laneOn(natstest.Conn(t, r.srv, nats.SetCustomDialer(line)), mesh.Config{Verifier: known}, noSweep)
	r.serve(first, mesh.Agent{Handler: g})
	task := signed(t, k.signer("ada", sign.Ed25519, ada), durably(t, newTask(reviewer, "code.review", `{"n":1}`)))
	r.submit(r.client(), task)
	within(t, "the task", g.entered)
	eventually(t, "it is claimed", func() bool { return r.begun(task) != nil })
	line.Block(true)
	unknown := newKeys(t).verifier()
	unknown.Mode = sign.Required
	r.serve(r.lane(mesh.Config{Verifier: unknown}, noSweep), mesh.Agent{Handler: echo})
	if reply, err := r.result(r.client(), task); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Errorf("result %v, %v", reply, err)
	}
	equal(t, "dead letters", len(r.letters()), 0)

	// A forged message with the id of that run is none of it.
	forged := *task
	forged.Payload = json.RawMessage(`{"n":2}`)
	r.again(&forged, nil)
	eventually(t, "the forged message is a dead letter", func() bool { return len(r.letters()) == 1 })
	equal(t, "replies", len(r.replies(task)), 1)
	g.open()
}

// The run has ended, and left its reply alone. Its message, whose ack was lost, is delivered
// again to a worker that cannot verify it: it is acked.
func TestAReplyStandsWhereItsTaskCannotBeVerified(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	k := newKeys(t)
	r := newDurableRig(t).shortLeases()
	line := natstest.NewCable(t)
	noSweep := func(d *mesh.Durable) { d.Sweep = -1 }
	known := k.verifier()
	known.Mode = sign.Required
	cut := func(d *mesh.Durable) {
		d.Observe = func(at mesh.Point, _ state.ID) {
			if at == mesh.PointAfterTerminal {
				line.Block(true)
			}
		}
	}
	first := r.laneOn(natstest.Conn(t, r.srv, nats.SetCustomDialer(line)), mesh.Config{Verifier: known}, noSweep, cut)
	r.serve(first, mesh.Agent{Handler: echo})
	r.aged()
	task := signed(t, k.signer("ada", sign.Ed25519, ada), durably(t, newTask(reviewer, "code.review", `{"n":1}`)))
	r.submit(r.client(), task)
	if reply, err := r.result(r.client(), task); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Fatalf("result %v, %v", reply, err)
	}
	rec := r.runRecord(task)
	if rec.End == nil {
		t.Fatalf("the run has a document: %s", rec.Data)
	}
	if r.queued() != 1 {
		t.Fatal("the message is acked")
	}
	core := r.listen("aee.reply." + reviewer + ".*")
	unknown := newKeys(t).verifier()
	unknown.Mode = sign.Required
	r.serve(r.lane(mesh.Config{Verifier: unknown}, noSweep), mesh.Agent{Handler: echo})
	r.drainedQueue()
	equal(t, "dead letters", len(r.letters()), 0)
	equal(t, "the record's revision", r.runRecord(task).Revision, rec.Revision)
	if heard := within(t, "the reply again", core); string(heard.Data) != string(rec.Data) {
		t.Errorf("heard %s", heard.Data)
	}

	// Another message is refused: of the same bytes, because the run does not name it, and a forged one.
	forged := *task
	forged.Payload = json.RawMessage(`{"n":2}`)
	for i, other := range []*envelope.Envelope{task, &forged} {
		r.again(other, nil)
		eventually(t, "the other message is a dead letter", func() bool { return len(r.letters()) == i+1 })
	}
	equal(t, "the record's revision after that", r.runRecord(task).Revision, rec.Revision)
}

func (r *durableRig) letters() (out []jetstream.DeadLetter) {
	r.t.Helper()
	for l, err := range r.dead().List(ctxFor(r.t), reviewer) {
		if err != nil {
			r.t.Fatal(err)
		}
		out = append(out, l)
	}
	return out
}

// An id may be too long for the subjects that a durable task, or a command in the queue, is
// answered on. Then nothing is done, and the message does not come again.
func TestAnIDThatFitsIntoNoSubjectIsRefused(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	var begun atomic.Int32
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		begun.Add(1)
		return json.RawMessage(`{}`), nil
	})})
	long := strings.Repeat("x", 513)
	plain, escaped := newTask(reviewer, "code.review", `{}`), newTask(reviewer, "code.review", `{}`)
	plain.ID, escaped.ID = long, strings.Repeat("ä", 86)
	command := mesh.NewCommand(ada, reviewer, intents.CancelTask{ID: plain.ID})
	command.ID = long
	handed := newTask(reviewer, "code.review", `{}`)
	handed.From = "agent.a"
	link := envelope.New(envelope.TypeEvent, "agent.a", reviewer, intents.TaskHanded, json.RawMessage(fmt.Sprintf(`{"task":%q,"caller":%q}`, long, ada)))
	link.Corr, link.ReplyTo = handed.Corr, long
	requiring(handed, fmt.Sprintf(`{"handoff":{"task":%q,"caller":%q,"intent":"code.review","chain":[%q]}}`, long, ada, chainOf(t, link)))
	for _, e := range []*envelope.Envelope{plain, escaped, command, handed} {
		r.queue("normal", e)
	}
	r.drainedQueue()
	codes := map[envelope.Code]int{}
	for _, l := range r.letters() {
		codes[envelope.Code(l.Code)]++
	}
	equal(t, "dead letters", codes, map[envelope.Code]int{envelope.CodeTooLarge: 3})
	if replies := r.replies(handed); begun.Load() != 0 || len(replies) != 1 || envelope.ErrorOf(replies[0]).Code != envelope.CodeRequires {
		t.Errorf("%d tasks were begun, and the delegated one was answered with %v", begun.Load(), replies)
	}
}

// What was tried once is not counted.
func TestATaskThatIsNotRetriedDiesOfItsError(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the model is away")
	})})
	client := r.client()
	task := newTask(reviewer, "code.review", `{"n":1}`)
	r.submit(client, task)
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeUnavailable {
		t.Fatalf("result %v", err)
	}
	r.drainedQueue()
	if letters := r.letters(); len(letters) != 1 || letters[0].Cause != "failed: the model is away" {
		t.Errorf("dead letters %+v", letters)
	}
}

func TestAnExhaustedTaskIsADeadLetterAndMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	events := r.events()
	var well atomic.Bool
	r.serve(r.lane(mesh.Config{}), mesh.Agent{
		Retry: mesh.RetryPolicy{Max: 1, Base: time.Millisecond},
		Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
			if !well.Load() {
				return nil, envelope.Errorf(envelope.CodeUnavailable, "the model is away")
			}
			return task.Envelope.Payload, nil
		}),
	})
	client := r.client()
	task := newTask(reviewer, "code.review", `{"n":1}`)
	run := r.submit(client, task).Run
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeUnavailable {
		t.Fatalf("result %v", err)
	}
	r.drainedQueue()
	c := r.record(task)
	equal(t, "status", c.Doc.Status, aaif.RunFailed)
	equal(t, "retries left", c.Doc.Error.RetriesRemaining, aaif.Int(0))
	letters := r.letters()
	if len(letters) != 1 {
		t.Fatalf("dead letters %+v", letters)
	}
	l := letters[0]
	if l.TaskID != task.ID || l.Run != run || l.Attempts != 2 || l.Code != string(envelope.CodeUnavailable) || l.Cause != "failed 2 times, at last: the model is away" || string(l.Data) != string(encode(t, task)) {
		t.Errorf("dead letter %+v", l)
	}
	alert := r.event(events, intents.AlertRaised)
	equal(t, "alert", member(t, alert.Payload, "dead_letter"), "true")

	// A message that calls itself the retry is none unless an operator has ordered it.
	r.again(task, nats.Header{jetstream.HeaderRetry: {fmt.Sprint(l.Seq)}})
	equal(t, "the record", r.record(task).Doc.StateID, c.Doc.StateID)
	equal(t, "dead letters", len(r.letters()), 1)

	well.Store(true)
	if _, err := r.dead().Retry(ctxFor(t), l.Seq); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second answer", func() bool { return len(r.replies(task)) == 2 })
	reply, err := client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{})
	if err != nil || string(reply.Payload) != `{"n":1}` {
		t.Errorf("result %v, %v", reply, err)
	}
	r.drainedQueue()
	equal(t, "status", r.record(task).Doc.Status, aaif.RunCompleted)
	equal(t, "dead letters", len(r.letters()), 0)
}

// A message that claims to resume a dead-lettered run is not the run's: its bytes become no dead
// letter under the task of another, and its sender is not answered.
func TestAForgedMessageOfADeadRunMakesNoDeadLetter(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: failing(envelope.Errorf(envelope.CodeUnavailable, "no luck")), Retry: mesh.RetryPolicy{Max: 1, Base: time.Millisecond}})
	client := r.client()
	task := newTask(reviewer, "code.review", `{"n":1}`)
	task.ReplyTo = envelope.NewID() // a hop: its digest does not depend on requires
	run := r.submit(client, task).Run
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeUnavailable {
		t.Fatalf("result %v", err)
	}
	r.drainedQueue()
	core := r.listen("aee.reply." + reviewer + ".*")
	other, altered := *task, *task
	other.Payload = json.RawMessage(`{"n":2}`)
	altered.Requires = json.RawMessage(`{"timeout_ms":86400000}`)
	for name, forged := range map[string]struct {
		task   *envelope.Envelope
		header nats.Header
	}{
		"another payload":    {&other, nats.Header{headers.HeaderRun: {run}}},
		"its own":            {task, nats.Header{headers.HeaderRun: {run}, "Extra": {"x"}}},
		"altered":            {&altered, nats.Header{headers.HeaderRun: {run}}},
		"altered, no header": {&altered, nil},
	} {
		for _, l := range r.letters() {
			if err := r.dead().Drop(ctxFor(t), l.Seq); err != nil {
				t.Fatal(err)
			}
		}
		r.again(forged.task, forged.header)
		letters := r.letters()
		if forged.task == &other && (len(letters) != 1 || letters[0].Run != "" || letters[0].Code != string(envelope.CodeReplay)) {
			t.Errorf("%s: dead letters %+v, want the forged message refused", name, letters)
		}
		for _, l := range letters {
			if l.Run != "" && (string(l.Data) != string(encode(t, task)) || l.Header.Get("Extra") != "") {
				t.Errorf("%s: dead letter of run %s: %s, %v", name, l.Run, l.Data, l.Header)
			}
		}
		if forged.header != nil && forged.task != &other {
			empty(t, name+": the reply again", core)
		} else {
			for len(core) > 0 {
				<-core
			}
		}
	}
}

// A task that kills its worker each time must not do so for ever.
func TestAPoisonousTaskStopsKillingWorkers(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t).shortLeases()
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	claims := func(d *mesh.Durable) { d.MaxClaims = 2 }
	for range 2 {
		g := newGate(t)
		nc := natstest.Conn(t, r.srv)
		r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}, claims), mesh.Agent{Handler: g})
		within(t, "the task", g.entered)
		nc.Close()
	}
	r.serve(r.lane(mesh.Config{}, claims), mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		t.Error("the task was begun a third time")
		return json.RawMessage(`{}`), nil
	})})
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeInternal {
		t.Errorf("result %v", err)
	}
	r.drainedQueue()
	letters := r.letters()
	if len(letters) != 1 || letters[0].Cause != "claimed 2 times without completing a step" {
		t.Errorf("dead letters %+v", letters)
	}
}

// The claim that ends a run sends nothing more of its stream: there is no claim yet in
// whose name it could.
func TestAClaimThatEndsAStreamedRun(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]func(*mesh.Durable){"": func(*mesh.Durable) {}, "fenced": fenced} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t).shortLeases()
			claims := func(d *mesh.Durable) { d.MaxClaims = 1 }
			client, task, end := r.diesInASentence(claims)
			r.serve(r.lane(mesh.Config{}, claims, second), mesh.Agent{Handler: echo})
			if _, err := client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{Follow: true}); codeOf(err) != envelope.CodeInternal {
				t.Errorf("result %v", err)
			}
			end()
			equal(t, "replies", len(r.replies(task)), 3)
		})
	}
}

func TestWhatCannotBeTakenIsADeadLetter(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	k := newKeys(t)
	r.serve(r.lane(mesh.Config{Verifier: k.verifier()}), mesh.Agent{Handler: echo})
	other := newTask("agent.other", "code.review", `{}`)
	forged := newTask(reviewer, "code.review", `{}`)
	forged.Sig = json.RawMessage(`{"alg":"ed25519","kid":"nobody","value":"AAAA"}`)
	event := newTask(reviewer, "code.review", `{}`)
	event.Type = envelope.TypeEvent
	old := newTask(reviewer, "code.review", `{}`)
	old.TS = "2020-01-01T00:00:00.000Z"
	for _, c := range []struct {
		name string
		data []byte
		id   string // "": there is no sender to answer
		code envelope.Code
	}{
		{"no envelope", []byte("hello"), "", envelope.CodeInvalidEnvelope},
		{"no payload", []byte(`{"v":"1","id":"01JFB2R1JZKQ9V3K8W8Y9W1F2A","ts":"2026-11-20T10:00:00Z","type":"task","from":"human.ada","to":"agent.reviewer","intent":"code.review","corr":"workflow-1","priority":"normal"}`), "01JFB2R1JZKQ9V3K8W8Y9W1F2A", envelope.CodeInvalidEnvelope},
		{"another's", encode(t, other), other.ID, envelope.CodeWrongRecipient},
		{"forged", encode(t, forged), forged.ID, envelope.CodeSigInvalid},
		{"an event", encode(t, event), event.ID, envelope.CodeUnexpectedType},
	} {
		before := len(r.letters())
		if err := r.nc.Publish("aee.work.high."+reviewer, c.data); err != nil {
			t.Fatal(err)
		}
		eventually(t, c.name+" is a dead letter", func() bool { return len(r.letters()) == before+1 })
		r.drainedQueue()
		l := r.letters()[before]
		if l.Code != string(c.code) || string(l.Data) != string(c.data) || l.Subject != "aee.work.high."+reviewer {
			t.Errorf("%s: dead letter %+v", c.name, l)
		}
		if c.id == "" {
			continue
		}
		if _, err := r.client().Result(ctxFor(t), reviewer, c.id, mesh.ResultOptions{Follow: true}); codeOf(err) != c.code {
			t.Errorf("%s: result %v", c.name, err)
		}
	}
	// There is no run of it, and yet it has ended: a cancel says so.
	if out := r.command(r.client(), intents.CancelTask{ID: forged.ID, Durable: true}); out.Cancelled || out.Status != "failed" {
		t.Errorf("a cancel of a task that was refused: %+v", out)
	}
	if _, err := jetstream.NewStates(r.js(r.nc), r.m).Get(ctxFor(t), state.ID{Entity: reviewer, Run: state.RunID(reviewer, forged.ID)}); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("the cancel was noted: %v", err)
	}

	// A task that is stale has a sender who is proven, and so a run.
	if err := r.nc.Publish("aee.work.high."+reviewer, encode(t, old)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.result(r.client(), old); codeOf(err) != envelope.CodeStale {
		t.Errorf("stale: %v", err)
	}
}

func TestAnIdThatIsUsedAgainForAnotherTask(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	client := r.client()
	task := newTask(reviewer, "code.review", `{"n":1}`)
	r.submit(client, task)
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	r.drainedQueue()
	other := newTask(reviewer, "code.review", `{"n":2}`)
	other.ID = task.ID
	if err := r.nc.Publish("aee.work.normal."+reviewer, encode(t, other)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second is a dead letter", func() bool { return len(r.letters()) == 1 })
	r.drainedQueue()
	equal(t, "code", r.letters()[0].Code, string(envelope.CodeReplay))
	equal(t, "replies", len(r.replies(task)), 1)

	// The sender of the second is told so, and does not get the first one's result. Each is a
	// dead letter: that the server knows the id does not make it the same task.
	var replayed *envelope.Error
	for range 2 {
		_, _, err := client.Perform(ctxFor(t), other.Clone(), mesh.SubmitOptions{}, mesh.ResultOptions{})
		if !errors.As(err, &replayed) || replayed.Code != envelope.CodeReplay {
			t.Errorf("an id used twice: %v", err)
		}
	}
	if _, reply, err := client.Perform(ctxFor(t), task.Clone(), mesh.SubmitOptions{CBOR: true}, mesh.ResultOptions{}); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Errorf("the same task again: %v, %v", reply, err)
	}

	// The same task with another priority and trace is the same task.
	again := task.Clone()
	again.Priority, again.Trace = envelope.PriorityHigh, json.RawMessage(`{"trace_id":"t","span_id":"s"}`)
	if _, err := r.js(r.nc).Publish(ctxFor(t), "aee.work.high."+reviewer, encode(t, again)); err != nil {
		t.Fatal(err)
	}
	r.drainedQueue()
	equal(t, "dead letters", len(r.letters()), 3)
}
