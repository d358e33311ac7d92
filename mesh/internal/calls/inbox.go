package calls

import (
	"context"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// post signs an envelope of the agent, puts it into a person's inbox, and returns when
// it was stored. It refuses what the person's client would not show.
func (a *Agent) post(ctx context.Context, e *envelope.Envelope) (time.Time, error) {
	d := a.stores()
	if d == nil || d.Inbox == nil {
		return time.Time{}, fault.NoInbox
	}
	if err := wire.Bounded(e); err != nil {
		return time.Time{}, envelope.Errorf(envelope.CodeTooLarge, "%v", err)
	}
	if err := wire.CheckIntent(e); err != nil {
		return time.Time{}, err
	}
	if e.Sig == nil {
		if err := a.sign(e, false); err != nil {
			return time.Time{}, err
		}
	}
	raw, err := e.AppendJSON(nil)
	if err != nil {
		return time.Time{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, sched.StoreTimeout)
	defer cancel()
	err = d.Inbox.Put(ctx, e.To, e.ID, raw)
	if errors.Is(err, jetstream.ErrNotFound) || errors.Is(err, jetstream.ErrUnavailable) {
		return time.Time{}, fault.NoInbox.WithCause(err)
	}
	if err != nil {
		return time.Time{}, err
	}
	return d.Clock.Now(ctx)
}

// Withdraw tells a person that a task of the run needs no answer any more, unless the person has
// answered it. It is best effort: if the event is lost, the person still sees the task, and an
// answer to it is ignored.
func (a *Agent) Withdraw(ctx context.Context, task *envelope.Envelope, w state.Wait, why string) {
	if w.Void || !subject.IsPerson(w.Entity) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sched.StoreTimeout)
	defer cancel()
	if answer, err := a.Answers.First(ctx, a.Stores.Replies, w, a.Entity, task.Corr); err != nil || answer != nil {
		return
	}
	e := envelope.New(envelope.TypeEvent, a.Entity, w.Entity, intents.TaskWithdrawn, wire.MustJSON(map[string]string{"task": w.TaskID, "reason": why}))
	e.Corr, e.Trace, e.Priority, e.ReplyTo = task.Corr, task.Trace, task.Priority, w.TaskID
	if _, err := a.post(ctx, e); err != nil {
		a.Log.Warn("person not told that a task is void", "task", w.TaskID, "to", w.Entity, "err", err)
	}
}

// WithdrawSent voids the task that the run has sent under a key: its answer is not needed any
// more. If a person has the task and has not answered, the person is told.
func (t *Task) WithdrawSent(ctx context.Context, key, reason string) {
	if t.Run == nil {
		return
	}
	id, sent := t.id(key), &t.Run.Record.sent
	if w, ok := sent.find(t.Run.Port.Checkpoint(), id); ok && !w.Void {
		sent.void(id)
		t.Agent.Withdraw(ctx, t.Envelope, w, reason)
		if subject.IsPerson(w.Entity) {
			t.Port.PublishStep(intents.RunWithdrawn, intents.StepEvent{Step: w.Key, To: w.Entity, Child: id, Durable: true, Detail: reason})
		}
	}
}
