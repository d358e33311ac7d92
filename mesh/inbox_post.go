package mesh

import (
	"context"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// storedAnswer is an answer with its place in the stream.
type storedAnswer struct {
	*envelope.Envelope
	seq uint64
	at  time.Time
}

// post signs an envelope of the agent, puts it into a person's inbox, and returns when
// it was stored.
func (h *host) post(ctx context.Context, e *envelope.Envelope) (time.Time, error) {
	d := h.node.durable()
	if d == nil || d.Inbox == nil {
		return time.Time{}, fault.NoInbox
	}
	if e.Sig == nil {
		if err := h.sign(e); err != nil {
			return time.Time{}, err
		}
	}
	raw, err := e.AppendJSON(nil)
	if err != nil {
		return time.Time{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
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

// withdraw tells a person that a task of the run needs no answer any more, unless it
// was answered. It is best effort: if the event is lost, the person still sees the task,
// and an answer to it is ignored.
func (h *host) withdraw(ctx context.Context, task *envelope.Envelope, w state.Wait, why string) {
	if w.Void || !subject.IsPerson(w.Entity) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if answer, err := h.node.answerTo(ctx, w, task.Corr); err != nil || answer != nil {
		return
	}
	e := envelope.New(envelope.TypeEvent, h.Entity, w.Entity, intents.TaskWithdrawn, wire.MustJSON(map[string]string{"task": w.TaskID, "reason": why}))
	e.Corr, e.Trace, e.Priority, e.ReplyTo = task.Corr, task.Trace, task.Priority, w.TaskID
	if _, err := h.post(ctx, e); err != nil {
		h.log.Warn("person not told that a task is void", "task", w.TaskID, "to", w.Entity, "err", err)
	}
}

// withdrawAll withdraws the unanswered tasks of a run that has ended from the people
// who have them.
func (rw *replyWriter) withdrawAll(r *Run, c *state.Checkpoint) {
	if len(c.Mesh.Waits) == 0 {
		return
	}
	why := "the run has ended"
	if e := c.Doc.Error; e != nil {
		why += ": " + clip.Text(e.Message, 128)
	}
	waits, task := c.Mesh.Waits, r.task.Envelope
	rw.work.Go(func() {
		for _, w := range waits {
			rw.host.withdraw(rw.ctx, task, w, why)
		}
	})
}

// Withdraw voids the task that was sent under a key: its answer is not needed any more.
// If a person has the task and has not answered, the person is told.
func (t *Task) Withdraw(ctx context.Context, key, reason string) {
	if t.run == nil {
		return
	}
	id := t.CallID(key)
	if w, ok := t.run.sentTask(id); ok && !w.Void {
		t.run.voidSent(id)
		t.host.withdraw(ctx, t.Envelope, w, reason)
		if subject.IsPerson(w.Entity) {
			t.PublishStep(intents.RunWithdrawn, intents.StepEvent{Step: w.Key, To: w.Entity, Child: id, Durable: true, Detail: reason})
		}
	}
}
