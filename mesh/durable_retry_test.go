package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
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
