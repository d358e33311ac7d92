package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// The worker that a run moved to never received the run's message: what it stores as a dead letter is
// the task in the record.
func TestARunThatMovedAndFailsIsADeadLetterThatMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	var well atomic.Bool
	m := newMovement(t, func(m *movement) {
		m.targetHandler = mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			if !well.Load() {
				return nil, envelope.Errorf(envelope.CodeUnavailable, "the model is away")
			}
			return m.target.Handle(ctx, task)
		})
	})
	m.move(m.targetID)
	within(t, "the error", m.heard.done)
	equal(t, "code", codeOf(m.heard.err), envelope.CodeUnavailable)
	m.drainedQueue()
	letters := m.letters()
	if len(letters) != 1 || string(letters[0].Data) != string(encode(t, m.task)) {
		t.Fatalf("dead letters %+v", letters)
	}

	well.Store(true)
	m.source.speak(100)
	m.target.speak(100)
	if _, err := m.dead().Retry(ctxFor(t), letters[0].Seq); err != nil {
		t.Fatal(err)
	}
	select { // either worker may have it
	case call := <-m.source.tools:
		close(call)
	case call := <-m.target.tools:
		close(call)
	case <-ctxFor(t).Done():
		t.Fatal("the retry was not begun")
	}
	eventually(t, "the result", func() bool {
		reply, err := m.client.Result(ctxFor(t), m.task.To, m.task.ID, mesh.ResultOptions{})
		return err == nil && reply.Type == envelope.TypeResult
	})
	m.drainedQueue()
	equal(t, "dead letters", len(m.letters()), 0)
}

// waning is a handler whose first attempt fails, whose second waits until it is asked to stop, and
// whose third does what then says.
type waning struct {
	attempts atomic.Int32
	waits    chan *mesh.Task
	then     mesh.Handler
}

func (w *waning) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	switch w.attempts.Add(1) {
	case 1:
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the model is away")
	case 2:
		w.waits <- task
		<-task.Run().StopRequested()
		return nil, task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, nil)
	}
	return w.then.Handle(ctx, task)
}

// triedAgain brings a run to its third attempt: it is a dead letter, is tried again, and then paused
// and resumed. It returns the letter.
func (r *durableRig) triedAgain(client *mesh.Node, w *waning, task *envelope.Envelope) jetstream.DeadLetter {
	r.t.Helper()
	eventually(r.t, "the dead letter", func() bool { return len(r.letters()) == 1 })
	r.drainedQueue()
	letter := r.letters()[0]
	if _, err := r.dead().Retry(ctxFor(r.t), letter.Seq); err != nil {
		r.t.Fatal(err)
	}
	within(r.t, "the second attempt", w.waits)
	r.command(client, intents.PauseTask{Target: target(task)})
	eventually(r.t, "it is paused", func() bool { return r.record(task).Doc.Status == "paused" })
	r.drainedQueue()
	r.command(client, intents.ResumeTask{Target: target(task)})
	return letter
}

// A run that is tried again goes on with other messages than that of the retry. If it fails again,
// the permit of the retry is used up all the same.
func TestAResumedRetryThatFailsUsesItsPermitUp(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	w := &waning{waits: make(chan *mesh.Task, 1), then: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the model is still away")
	})}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: w})
	client, task := r.client(), newTask(reviewer, "code.review", `{"n":1}`)
	r.submit(client, task)
	first := r.triedAgain(client, w, task)
	eventually(t, "the second letter", func() bool { l := r.letters(); return len(l) == 1 && l[0].Seq != first.Seq })
	r.drainedQueue()
	if yes, err := r.dead().Retrying(ctxFor(t), reviewer, fmt.Sprint(first.Seq), first.Data); yes || err != nil {
		t.Errorf("the permit of the first retry: %v, %v", yes, err)
	}
}

// The result of a retry that delegates the task is the receiver's, not the error of the failed attempt
// that is stored beside the run's record.
func TestTheResultOfARetryThatDelegatesIsTheReceivers(t *testing.T) {
	t.Parallel()
	for name, requires := range map[string]string{"without a stream": `{}`, "with a stream": `{"stream":true}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			var attempts atomic.Int32
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
				if task.Streaming() {
					if err := task.Emit(json.RawMessage(`{"text":"on"}`)); err != nil {
						return nil, err
					}
				}
				return json.RawMessage(`{"n":2}`), nil
			})})
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				if attempts.Add(1) == 1 {
					return nil, envelope.Errorf(envelope.CodeUnavailable, "the model is away")
				}
				return task.Delegate(ctx, mesh.Delegation{To: helper})
			})})
			r.hears(helper)
			client, task := r.client(), requiring(newTask(reviewer, "code.review", `{"n":1}`), requires)
			r.submit(client, task)
			eventually(t, "the dead letter", func() bool { return len(r.letters()) == 1 })
			r.drainedQueue()
			if _, err := client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{}); codeOf(err) != envelope.CodeUnavailable {
				t.Fatalf("before the retry: %v", err)
			}
			if _, reply, err := client.Retry(ctxFor(t), r.letters()[0].Seq, mesh.ResultOptions{}); err != nil || string(reply.Payload) != `{"n":2}` {
				t.Fatalf("the retry: %v, %v", reply, err)
			}
			r.drainedQueue() // what is announced is stored
			for _, follow := range []bool{false, true} {
				if reply, err := client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{Follow: follow}); err != nil || string(reply.Payload) != `{"n":2}` {
					t.Errorf("follow %v: %v", follow, err)
				}
			}
			if reply, err := client.Await(ctxFor(t), task, mesh.ResultOptions{}); err != nil || string(reply.Payload) != `{"n":2}` {
				t.Errorf("awaited: %v", err)
			}
		})
	}
}

// A run that is tried again has a deadline of its own: that of its tree has passed. It stays so when
// the run goes on with another message, and for the tasks that are sent for it.
func TestARetryOutlivesTheDeadlineOfItsTree(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	for name, then := range map[string]mesh.Handler{
		"answers": mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			select {
			case <-ctx.Done(): // a task whose deadline has passed ends at once
			case <-time.After(300 * time.Millisecond):
			}
			return task.Envelope.Payload, ctx.Err()
		}),
		"calls a durable agent": mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			a, err := task.Call(ctx, mesh.Call{To: helper, Key: "one", Payload: task.Envelope.Payload})
			if err != nil {
				return nil, err
			}
			return a.Envelope.Payload, nil
		}),
		"calls a live agent": mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			a, err := task.Call(ctx, mesh.Call{To: helper, Key: "one", Live: true, Payload: task.Envelope.Payload})
			if err != nil {
				return nil, err
			}
			return a.Envelope.Payload, nil
		}),
		"delegates": mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			return task.Delegate(ctx, mesh.Delegation{To: helper})
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			w := &waning{waits: make(chan *mesh.Task, 1), then: then}
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: echo})
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: w})
			r.hears(helper)
			deadline := time.Now().Add(10 * time.Second)
			client := r.client()
			task := requiring(newTask(reviewer, "code.review", `{"n":1}`), `{"tree":{"depth":1,"deadline":"`+deadline.UTC().Format(time.RFC3339Nano)+`"}}`)
			task.ReplyTo = "the-parents-id"
			r.submit(client, task)
			eventually(t, "the dead letter", func() bool { return len(r.letters()) == 1 })
			eventually(t, "the deadline has passed", func() bool { return time.Now().After(deadline.Add(50 * time.Millisecond)) })
			r.triedAgain(client, w, task)
			var replies []*envelope.Envelope
			eventually(t, "the second answer", func() bool { replies = r.replies(task); return len(replies) == 2 })
			if !slices.ContainsFunc(replies, func(e *envelope.Envelope) bool {
				return e.Type == envelope.TypeResult && strings.Contains(string(e.Payload), `"n":1`)
			}) {
				for _, e := range replies {
					t.Errorf("reply of %s: %s", e.From, e.Payload)
				}
			}
		})
	}
}

// The deadline of the agents that delegated a task is that of its first attempt, too.
func TestARetryOutlivesTheDeadlineOfItsDelegation(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	var attempts atomic.Int32
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: handsTo(reviewer)})
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		if attempts.Add(1) == 1 {
			return nil, envelope.Errorf(envelope.CodeUnavailable, "the model is away")
		}
		return json.RawMessage(`{"n":2}`), nil
	})})
	r.hears("agent.a", reviewer)
	client, task := r.client(), requiring(newTask("agent.a", "code.review", `{}`), `{"timeout_ms":10000}`)
	r.submit(client, task)
	deadline := time.Now().Add(10 * time.Second)
	eventually(t, "the dead letter", func() bool { return len(r.letters()) == 1 })
	r.drainedQueue()
	eventually(t, "the deadline has passed", func() bool { return time.Now().After(deadline.Add(50 * time.Millisecond)) })
	if _, err := r.dead().Retry(ctxFor(t), r.letters()[0].Seq); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second answer", func() bool { return len(r.replies(task)) == 2 })
	if reply, err := client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{}); err != nil || string(reply.Payload) != `{"n":2}` {
		t.Errorf("result %v, %v", reply, err)
	}
}
