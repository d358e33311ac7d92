package mesh_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

func (r *durableRig) dead() *jetstream.Dead { return jetstream.NewDead(r.js(r.nc), r.m) }

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

func TestAFailureIsTriedAgainWithItsState(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	events := r.events()
	r.serve(r.lane(mesh.Config{}), mesh.Agent{
		Retry: mesh.RetryPolicy{Max: 3, Base: time.Millisecond, Backoff: mesh.BackoffFixed},
		Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			c := task.Run().View()
			if c.Mesh.Attempt < 2 {
				if err := task.Run().Stage(state.Step{Kind: state.StepHandler}, func(c *state.Checkpoint) error {
					c.Mesh.Loop = json.RawMessage(fmt.Sprintf(`{"failures":%d}`, c.Mesh.Attempt+1))
					return nil
				}); err != nil {
					return nil, err
				}
				return nil, envelope.Errorf(envelope.CodeUnavailable, "the model is away")
			}
			return c.Mesh.Loop, nil
		}),
	})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	reply, err := r.result(client, task)
	if err != nil || string(reply.Payload) != `{"failures":2}` {
		t.Fatalf("result %v, %v", reply, err)
	}
	retrying := r.event(events, intents.TaskRetrying)
	equal(t, "attempt told", member(t, retrying.Payload, "attempt"), "2")
	if !strings.Contains(member(t, retrying.Payload, "error"), "the model is away") {
		t.Errorf("event %s", retrying.Payload)
	}
	r.drainedQueue()
	c := r.record(task)
	equal(t, "attempt", c.Mesh.Attempt, 2)
	equal(t, "error of a run that completed", c.Doc.Error, (*aaif.RunError)(nil))
	equal(t, "dead letters", len(r.letters()), 0)
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

// A task that kills its worker each time must not do so for ever.
func TestAPoisonousTaskStopsKillingWorkers(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
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
		id   string // "": nobody can be answered
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

	// Whoever waits for the second is told so, and not the first one's result:
	// while the server still knows the id, and later.
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
	if err := r.nc.Publish("aee.work.high."+reviewer, encode(t, again)); err != nil {
		t.Fatal(err)
	}
	settle(t, r.nc)
	r.drainedQueue()
	equal(t, "dead letters", len(r.letters()), 1)
}

func TestADeadlinePassesWhileTheTaskIsQueued(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: g})
	client := r.client()
	r.submit(client, newTask(reviewer, "code.review", `{}`))
	within(t, "the task", g.entered)
	task := requiring(newTask(reviewer, "code.review", `{}`), `{"timeout_ms":1}`)
	r.submit(client, task)
	since := time.Now()
	eventually(t, "the deadline has passed by any clock", func() bool { return time.Since(since) > 500*time.Millisecond })
	g.open()
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeTimeout {
		t.Errorf("result %v", err)
	}
	r.drainedQueue()
	select {
	case <-g.entered:
		t.Error("a task was begun whose deadline had passed")
	default:
	}
	equal(t, "dead letters", len(r.letters()), 0)
}

func TestADeadlinePassesWhileTheTaskRuns(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := willing{newGate(t)}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: g, Retry: mesh.RetryPolicy{Max: 5}})
	client := r.client()
	task := requiring(newTask(reviewer, "code.review", `{}`), `{"timeout_ms":300}`)
	r.submit(client, task)
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeTimeout || !strings.Contains(err.Error(), "300ms") {
		t.Errorf("result %v", err)
	}
	r.drainedQueue()
	equal(t, "attempts", r.record(task).Mesh.Attempt, 0)
}

// The agent's own limit is for running: what a run waited for does not count,
// and what it ran under an earlier owner does.
func TestTheAgentsTimeoutCountsRunningTime(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	s := newStepper(t, 2)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s, Timeout: 1500 * time.Millisecond})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", s.entered)
	began := time.Now()
	r.command(client, intents.PauseTask{Target: target(task)})
	eventually(t, "it has run for a while", func() bool { return time.Since(began) > 200*time.Millisecond })
	s.next <- struct{}{}
	within(t, "the commit", s.outcome)
	r.drainedQueue()
	paused := r.record(task)
	if paused.Mesh.Ran < 200*time.Millisecond || paused.Mesh.Ran >= 1500*time.Millisecond {
		t.Errorf("ran %v", paused.Mesh.Ran)
	}
	r.command(client, intents.ResumeTask{Target: target(task)})
	within(t, "the task", s.entered)
	_, err := r.result(client, task) // nobody lets it go on
	if codeOf(err) != envelope.CodeTimeout || !strings.Contains(err.Error(), "1.5s") {
		t.Errorf("result %v", err)
	}
	if c := r.record(task); c.Mesh.Ran < 1500*time.Millisecond {
		t.Errorf("ran %v", c.Mesh.Ran)
	}
}

func TestScheduledTasks(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	client := r.client()
	task, doomed := newTask(reviewer, "code.review", `{}`), newTask(reviewer, "code.review", `{}`)
	before := time.Now()
	receipt, err := client.Submit(ctxFor(t), task, mesh.SubmitOptions{After: 1200 * time.Millisecond})
	if err != nil || receipt.Due.Before(before.Add(time.Second)) {
		t.Fatalf("receipt %+v, %v", receipt, err)
	}
	if _, err := client.Submit(ctxFor(t), doomed, mesh.SubmitOptions{At: time.Now().Add(2 * time.Second)}); err != nil {
		t.Fatal(err)
	}
	never := newTask(reviewer, "code.review", `{"n":3}`)
	if _, err := client.Submit(ctxFor(t), never, mesh.SubmitOptions{After: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.lane(mesh.Config{Entity: "agent.stranger"}).Command(ctxFor(t), reviewer, intents.CancelTask{ID: never.ID}); codeOf(err) != envelope.CodeDenied {
		t.Errorf("a stranger's cancel of a scheduled task: %v", err)
	}
	for _, task := range []*envelope.Envelope{doomed, never} {
		if out := r.command(client, intents.CancelTask{ID: task.ID}); !out.Cancelled || out.Status != "failed" {
			t.Errorf("cancel of a scheduled task: %+v", out)
		}
		r.cancelled(client, task) // at once
	}
	// Its message is purged too. A busy server (2.15.2) says that it has done so and
	// sometimes still returns it: when it falls due its run has ended.
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	began := r.record(task).Mesh.StartedAt
	if at := before.Add(1200 * time.Millisecond); began.Before(at.Add(-50 * time.Millisecond)) {
		t.Errorf("begun at %v, due at %v", began, at)
	}
}

// A task may also say itself when it is to begin, and go to the queue at once;
// and be signed long before, so that its ts is past by then.
func TestATaskThatIsToBeginLater(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{Skew: 2 * time.Second}), mesh.Agent{Handler: echo})
	client := r.client()
	at := time.Now().Add(2500 * time.Millisecond)
	task := requiring(newTask(reviewer, "code.review", `{}`), fmt.Sprintf(`{"not_before":%q}`, at.UTC().Format(time.RFC3339Nano)))
	r.submit(client, task)
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	if began := r.record(task).Mesh.StartedAt; began.Before(at.Add(-50 * time.Millisecond)) {
		t.Errorf("begun at %v, due at %v", began, at)
	}
}

func TestAnAsynchronousAgentAnswersWithAJobID(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: g, Async: true})
	client := r.client()
	task := newTask(reviewer, "code.review", `{"n":1}`)
	reply, err := client.Send(ctxFor(t), task, mesh.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"job_id":%q,"run_id":%q,"replies":%q}`, reply.ReplyTo, state.RunID(reviewer, reply.ReplyTo), "aee.reply.agent.reviewer."+reply.ReplyTo)
	equal(t, "answer", string(reply.Payload), want)
	within(t, "the task in the background", g.entered)
	g.open()
	task.ID = reply.ReplyTo
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Errorf("result %v, %v", reply, err)
	}
}

// A worker that stops gives back what it has not begun, lets the step end that
// it is in, and hands the run on.
func TestDrainHandsOn(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	s := newStepper(t, 3)
	first := r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s, Concurrency: 1})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", s.entered)
	s.next <- struct{}{}
	if err := within(t, "the first step", s.outcome); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	first.stop()
	go func() { stopped <- first.end() }()
	s2 := newStepper(t, 3)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s2})
	eventually(t, "the worker is stopping", func() bool {
		select {
		case s.next <- struct{}{}:
		default:
		}
		select {
		case err := <-s.outcome:
			return isErr(err, mesh.ErrParked)
		default:
			return false
		}
	})
	again := within(t, "the task again", s2.entered)
	done := again.Run().View()
	equal(t, "epoch", done.Mesh.Epoch, uint64(2))
	equal(t, "claims", done.Mesh.Claims, 1)
	if err := within(t, "the first worker", stopped); err != nil {
		t.Error(err)
	}
	s2.open()
	if _, err := r.result(client, task); err != nil {
		t.Error(err)
	}
	r.drainedQueue()
	equal(t, "replies", len(r.replies(task)), 1)
}

// A handler that outlives the drain keeps its process from nothing but its own
// end: the run goes on elsewhere at once, and the claim does not count.
func TestDrainGivesUpWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	first := r.serve(r.lane(mesh.Config{Drain: 50 * time.Millisecond}), mesh.Agent{Handler: g})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", g.entered)
	if err := first.end(); err == nil || !strings.Contains(err.Error(), "1 task") {
		t.Errorf("the drain: %v", err)
	}
	c := r.record(task)
	equal(t, "owner", c.Mesh.Owner, "")
	equal(t, "claims", c.Mesh.Claims, 0)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	if _, err := r.result(client, task); err != nil {
		t.Error(err)
	}
	g.open() // what the first one says now is heard by nobody
	r.drainedQueue()
	equal(t, "replies", len(r.replies(task)), 1)
}

func TestCBORAllTheWay(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(streamFive)})
	client := r.client()
	task := requiring(newTask(reviewer, "code.review", `{"n":1}`), `{"stream":true}`)
	var chunks []string
	_, reply, err := client.Perform(ctxFor(t), task, mesh.SubmitOptions{CBOR: true}, mesh.ResultOptions{OnStream: func(e *envelope.Envelope) error {
		chunks = append(chunks, string(e.Payload))
		return nil
	}})
	if err != nil || string(reply.Payload) != `{"n":1}` {
		t.Fatalf("result %v, %v", reply, err)
	}
	equal(t, "stream", chunks, []string{`{"seq":1,"text":"chunk"}`, `{"seq":2,"text":"chunk"}`, `{"seq":3,"text":"chunk"}`, `{"seq":4,"text":"chunk"}`, `{"seq":5,"text":"chunk"}`})
	for msg, err := range jetstream.NewReplies(r.js(r.nc), r.m).Read(ctxFor(t), task.To, task.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "Content-Type", msg.Header.Get("Content-Type"), envelope.ContentCBOR)
		if _, err := envelope.ParseCBOR(msg.Data); err != nil {
			t.Error(err)
		}
	}
	// And whoever asks later gets the same.
	var later []string
	if _, err := client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{OnStream: func(e *envelope.Envelope) error {
		later = append(later, string(e.Payload))
		return nil
	}}); err != nil || !slices.Equal(later, chunks) {
		t.Errorf("later %q, %v", later, err)
	}
}

// The worker dies in the middle of a sentence. The sender reads it once: what
// the next worker says again is left out, and where it says something else the
// sender is told so.
func TestAStreamGoesOnAfterAWorkersDeath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		again []string
		want  []string
	}{
		{"the same", []string{"one ", "two ", "three ", "four"}, []string{`{"seq":1,"text":"one "}`, `{"seq":2,"text":"two "}`, `{"seq":3,"text":"three "}`, `{"seq":4,"text":"four"}`}},
		{"in other pieces", []string{"one two thr", "ee four"}, []string{`{"seq":1,"text":"one "}`, `{"seq":2,"text":"two "}`, `{"seq":3,"text":"thr"}`, `{"seq":4,"text":"ee four"}`}},
		{"different", []string{"one ", "too many"}, []string{`{"seq":1,"text":"one "}`, `{"seq":2,"text":"two "}`, `{"seq":3,"restart":true,"text":"one too many"}`}},
		{"shorter", []string{"one "}, []string{`{"seq":1,"text":"one "}`, `{"seq":2,"text":"two "}`, `{"seq":3,"restart":true,"text":"one "}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			g := newGate(t)
			nc := natstest.Conn(t, r.srv)
			r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				for _, text := range []string{"one ", "two "} {
					if err := task.EmitText(text); err != nil {
						t.Error(err)
					}
				}
				return g.Handle(ctx, task)
			})})
			client := r.client()
			task := requiring(newTask(reviewer, "code.review", `{}`), `{"stream":true}`)
			r.submit(client, task)
			within(t, "the task", g.entered)
			eventually(t, "both pieces are stored", func() bool { return len(r.replies(task)) == 2 })
			nc.Close()
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
				for _, text := range c.again {
					if err := task.EmitText(text); err != nil {
						return nil, err
					}
				}
				return json.RawMessage(`{}`), nil
			})})
			var chunks []string
			reply, err := client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{Follow: true, OnStream: func(e *envelope.Envelope) error {
				chunks = append(chunks, string(e.Payload))
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "stream", chunks, c.want)
			r.drainedQueue() // so it is stored, too
			replies := r.replies(task)
			equal(t, "the last", replies[len(replies)-1].ID, reply.ID)
			equal(t, "replies", len(replies), len(c.want)+1)
			g.open()
		})
	}
}

func TestAHandlerMayGoOnWithWhatWasTold(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	nc := natstest.Conn(t, r.srv)
	r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		run := task.Run()
		if err := task.EmitText("a finished turn. "); err != nil {
			t.Error(err)
		}
		if err := run.Commit(ctx, state.Step{Kind: state.StepModel}, func(c *state.Checkpoint) error { c.Mesh.Told = ""; return nil }); err != nil {
			t.Error(err)
		}
		if err := task.EmitText("half a "); err != nil {
			t.Error(err)
		}
		return g.Handle(ctx, task)
	})})
	client := r.client()
	task := requiring(newTask(reviewer, "code.review", `{}`), `{"stream":true}`)
	r.submit(client, task)
	within(t, "the task", g.entered)
	eventually(t, "both pieces are stored", func() bool { return len(r.replies(task)) == 2 })
	nc.Close()
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		equal(t, "told", task.Run().Told(), "half a ")
		return json.RawMessage(`{}`), task.EmitText("sentence")
	})})
	var text string
	if _, err := client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{Follow: true, OnStream: func(e *envelope.Envelope) error {
		text += strings.Trim(member(t, e.Payload, "text"), `"`)
		return nil
	}}); err != nil {
		t.Fatal(err)
	}
	equal(t, "text", text, "a finished turn. half a sentence")
	g.open()
}

func TestADeafLaneShows(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	node := r.lane(mesh.Config{}, func(d *mesh.Durable) { d.Create = false })
	w := begin(t, node, mesh.Agent{Entity: reviewer, Handler: echo})
	_ = w
	eventually(t, "the agent is degraded", func() bool {
		msg, err := r.nc.RequestMsg(&nats.Msg{Subject: reviewer, Data: encode(t, newTask(reviewer, intents.StatusHealth, `{}`))}, time.Second)
		if err != nil {
			return false
		}
		p := parse(t, msg.Data).Payload
		return member(t, p, "status") == `"degraded"` && strings.Contains(member(t, p, "details"), `"state":"deaf"`)
	})
	msg, err := r.nc.Request("$SRV.STATS.agent-reviewer", nil, patience)
	if err != nil || !strings.Contains(string(msg.Data), `"name":"work"`) || !strings.Contains(string(msg.Data), `"state":"deaf"`) {
		t.Errorf("stats %s, %v", msg.Data, err)
	}
}

// A run that is sealed with a key that this worker lacks waits for another
// worker, and the worker's health says so.
func TestARunThatCannotBeReadShows(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	task := newTask(reviewer, "code.review", `{}`)
	ring, err := state.NewKeyring(state.Key{Secret: bytes.Repeat([]byte{7}, state.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	c := state.New(reviewer, task.ID, "")
	c.Mesh.Task = encode(t, task)
	data, err := state.Codec{Seal: ring}.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.NewStates(r.js(r.nc), r.m).Put(ctxFor(t), state.ID{Entity: reviewer, Run: c.Doc.RunID}, 0, data); err != nil {
		t.Fatal(err)
	}
	r.submit(r.client(), task)
	eventually(t, "the agent is degraded", func() bool {
		p := r.request(newTask(reviewer, intents.StatusHealth, `{}`)).Payload
		return member(t, p, "status") == `"degraded"` && strings.Contains(member(t, p, "details"), "cannot read: run "+c.Doc.RunID)
	})
}

// A message that claims to be about a run, and is about another task, is that
// task.
func TestAForgedRunHeaderIsNotBelieved(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	client := r.client()
	done := newTask(reviewer, "code.review", `{"n":1}`)
	run := r.submit(client, done).Run
	if _, err := r.result(client, done); err != nil {
		t.Fatal(err)
	}
	task := newTask(reviewer, "code.review", `{"n":2}`)
	if err := r.nc.PublishMsg(&nats.Msg{Subject: "aee.work.normal." + reviewer, Header: nats.Header{mesh.HeaderRun: {run}}, Data: encode(t, task)}); err != nil {
		t.Fatal(err)
	}
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":2}` {
		t.Errorf("%v, %v", reply, err)
	}
}

func TestTheWholeMeshKeepsToALimit(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	agent := mesh.Agent{Handler: g, Concurrency: 4, MeshConcurrency: 2}
	nc := natstest.Conn(t, r.srv)
	r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}), agent)
	client := r.client()
	var tasks []*envelope.Envelope
	for i := range 5 {
		tasks = append(tasks, newTask(reviewer, "code.review", fmt.Sprintf(`{"n":%d}`, i)))
		r.submit(client, tasks[i])
	}
	within(t, "a task", g.entered)
	within(t, "a task", g.entered)
	r.serve(r.lane(mesh.Config{}), agent)
	var running, most atomic.Int64
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Concurrency: 4, MeshConcurrency: 2, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		return g.Handle(ctx, task)
	})})
	slots := jetstream.NewSlots(r.js(r.nc), r.m, 2*time.Second)
	if held, err := slots.List(ctxFor(t), reviewer); err != nil || len(held) != 2 {
		t.Errorf("slots held %+v, %v", held, err)
	}
	select {
	case <-g.entered:
		t.Error("a third task was begun")
	default:
	}
	nc.Close() // its slots come free with their lease, and its tasks with theirs
	within(t, "a task again", g.entered)
	within(t, "a task again", g.entered)
	select {
	case <-g.entered:
		t.Error("a third task was begun")
	default:
	}
	g.open()
	for _, task := range tasks {
		if _, err := r.result(client, task); err != nil {
			t.Error(err)
		}
	}
	r.drainedQueue()
	if most.Load() > 2 {
		t.Errorf("%d ran at once", most.Load())
	}
}

func TestTheLaneIsMeasuredAndTraced(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	reader, spans := sdkmetric.NewManualReader(), tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	g := newGate(t)
	nc := natstest.Conn(t, r.srv)
	r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}), mesh.Agent{Handler: g})
	client := r.lane(mesh.Config{Entity: ada, TracerProvider: tp})
	ctx, root := tp.Tracer("test").Start(ctxFor(t), "root")
	task := newTask(reviewer, "code.review", `{}`)
	if _, err := client.Submit(ctx, task, mesh.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	root.End()
	within(t, "the task", g.entered)
	nc.Close()
	node := r.lane(mesh.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), TracerProvider: tp})
	r.serve(node, mesh.Agent{Retry: mesh.RetryPolicy{Max: 1, Base: time.Millisecond}, Handler: failing(envelope.Errorf(envelope.CodeUnavailable, "no luck"))})
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeUnavailable {
		t.Fatal(err)
	}
	r.drainedQueue()
	got := map[string]float64{}
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	for _, m := range data.ScopeMetrics[0].Metrics {
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range d.DataPoints {
				got[m.Name] += float64(p.Value)
			}
		case metricdata.Histogram[int64]:
			for _, p := range d.DataPoints {
				got[m.Name] += float64(p.Count)
			}
		case metricdata.Histogram[float64]:
			for _, p := range d.DataPoints {
				got[m.Name] += float64(p.Count)
			}
		case metricdata.Gauge[int64]:
			for range d.DataPoints {
				got[m.Name]++
			}
		case metricdata.Gauge[float64]:
			for range d.DataPoints {
				got[m.Name]++
			}
		}
	}
	for name, least := range map[string]float64{
		"aee.run.recoveries": 1, "aee.task.redeliveries": 2, "aee.task.retries": 1, "aee.dead_letters": 1,
		"aee.checkpoint.duration": 4, "aee.checkpoint.size": 4, // claim, retry, claim, end
		"aee.queue.backlog": 4, "aee.queue.leased": 4, "aee.queue.oldest.age": 4, // one for each priority
		"aee.task.duration": 1,
	} {
		if got[name] < least {
			t.Errorf("%s: %v, want at least %v", name, got[name], least)
		}
	}
	eventually(t, "all spans end", func() bool { return len(spans.GetSpans()) == 3 })
	for _, s := range spans.GetSpans() {
		equal(t, s.Name+": trace", s.SpanContext.TraceID(), root.SpanContext().TraceID())
	}
	g.open()
}
