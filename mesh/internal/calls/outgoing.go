package calls

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strconv"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/bounds"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// id is [ID] for a call of a durable task.
func (t *Task) id(key string) string {
	return run.CallID(t.Run.Port.Checkpoint(), t.Envelope, t.Run.ID, key)
}

// outgoing is a call that a task makes.
type outgoing struct {
	*Task
	c *Call
	a *Answer // nil until the call's task is known

	counted bool     // as a task of the tree
	digests []string // of the durable task that is sent; nil: none is, or it has no digest
}

// Call sends a task to another agent or to a person, in the name of the task's agent, and waits
// for its answer. The Answer is not nil if the task was sent.
func (t *Task) Call(ctx context.Context, c Call) (*Answer, error) {
	o := &outgoing{Task: t, c: &c}
	switch {
	case c.Key == "" || len(c.Key) > maxCallKey:
		return nil, envelope.Errorf(envelope.CodeInternal, "a call needs a key, of at most %d bytes", maxCallKey)
	case subject.IsPerson(c.To):
		return o.askPerson(ctx)
	case client.PublishesTo(c.To):
		return nil, client.Unserved(c.To)
	}
	if _, err := t.Sender.Subjects.Live(c.To); err != nil {
		return nil, envelope.Errorf(envelope.CodeInternal, "a call to %s: %w", clip.Text(c.To, 128), err)
	}
	task, err := o.newTask()
	if err != nil {
		return nil, err
	}
	if c.State != nil {
		var ref json.RawMessage
		err := t.Port.Persist(ctx, func() (err error) {
			ref, err = t.Port.StoreState(ctx, c.Key, c.State)
			return err
		})
		if err != nil {
			return nil, err
		}
		task.Requires = withMember(task.Requires, requires.Context, ref)
	}
	durable, err := o.hasLane(ctx)
	if err != nil {
		return nil, sender.Failure(task, err)
	}
	a := &Answer{TaskID: task.ID, Entity: c.To, Durable: durable, Began: time.Now()}
	o.a = a
	if !durable {
		err = o.live(ctx, task)
		durable = errors.Is(err, errLane)
	}
	if durable {
		a.Durable = true
		err = o.durable(ctx, task)
	}
	a.Ended = time.Now()
	readReply(a)
	return a, err
}

// newTask returns the envelope of a call, unsigned and without the deadline.
func (o *outgoing) newTask() (*envelope.Envelope, error) {
	intent := o.c.Intent
	if intent == "" {
		intent = intents.RunIntent(o.c.To)
	}
	payload := o.c.Payload
	if len(o.c.References) > 0 {
		var err error
		if payload, err = envelope.WithReferences(payload, o.c.References...); err != nil {
			return nil, envelope.Errorf(envelope.CodeInternal, "the references of a call to %s: %w", clip.Text(o.c.To, 128), err)
		}
	}
	e := envelope.New(envelope.TypeTask, o.Entity, o.c.To, intent, payload)
	e.Corr, e.Priority, e.Trace, e.ReplyTo = o.Envelope.Corr, o.Envelope.Priority, o.Envelope.Trace, o.Envelope.ID
	members := map[string]json.RawMessage{}
	if len(o.c.Requires) > 0 {
		all, err := json.Marshal(o.c.Requires)
		if err != nil {
			return nil, envelope.Errorf(envelope.CodeInternal, "the requires of a call to %s: %w", clip.Text(o.c.To, 128), err)
		}
		if err := requires.SecretIn(all); err != nil {
			return nil, err
		}
	}
	for name, value := range o.c.Requires {
		switch name {
		case "timeout_ms", "stream", "human_approval", requires.Tree:
		default:
			members[name] = value
		}
	}
	if o.c.OnStream != nil {
		members["stream"] = json.RawMessage("true")
	}
	if err := o.Port.Inherit(members); err != nil {
		return nil, err
	}
	e.Requires = objectOf(members)
	return e, nil
}

// times returns the timeout of the called task, and the time until which the caller waits.
// The caller waits a little longer than the timeout, to get the receiver's own E_TIMEOUT, and
// a little less than the rest of the task's own time, so that the task can still answer.
func (o *outgoing) times(ctx context.Context, began time.Time) (timeout time.Duration, until time.Time) {
	now := time.Now()
	left := o.Deadline.Sub(now)
	if own, ok := ctx.Deadline(); ok {
		left = min(left, own.Sub(now))
	}
	margin := min(left/20, sender.Grace)
	timeout = left - margin
	if own := o.c.Timeout - now.Sub(began); o.c.Timeout > 0 && own < timeout {
		timeout = own
		margin = min(sender.Grace, left-timeout)
	}
	return timeout, now.Add(timeout + margin/2)
}

// ready writes the timeout into the task of a call and signs the task.
func (o *outgoing) ready(task *envelope.Envelope, timeout time.Duration, durable bool) error {
	if timeout <= 0 {
		return envelope.Errorf(envelope.CodeTimeout, "no time is left to call %s", task.To)
	}
	task.Requires = moreMember(task.Requires, "timeout_ms", strconv.AppendInt(nil, max(1, timeout.Milliseconds()), 10))
	return o.sign(task, durable)
}

// begin prepares to send a call, and records it in the run's checkpoint. Only the first time it
// checks the tree's budget and counts the call: a task that was sent before has used its part of
// the budget anyway. If begin fails, the call is not sent; the checkpoint goes on naming it if it was
// sent before, so that the end of the run cancels it.
func (o *outgoing) begin(ctx context.Context, first bool) error {
	var err error
	if first {
		if err := o.Tree.CheckBudget(ctx); err != nil {
			return err
		}
	}
	var counted bounds.Counted
	if first {
		counted, o.counted = o.Tree.CountTask(), true
		runtime.Gosched() // the request to the counters goes out before the write is encoded
	}
	sent := o.Run != nil && o.Run.names(o.c.Key, o.a.TaskID)
	if o.Run != nil { // writes while the server counts
		err = o.Run.addCall(ctx, state.Call{Key: o.c.Key, ID: o.a.TaskID, To: o.c.To, Live: !o.a.Durable, At: o.Now(), Sent: o.digests})
	}
	if err == nil && first {
		err = counted.Check(ctx)
	}
	if err == nil {
		err = o.Tree.BeginTree(ctx)
	}
	if err != nil {
		if !sent {
			o.remove(o.a.TaskID)
		}
		return err
	}
	if o.c.Begun != nil {
		o.c.Begun(o.a.TaskID, o.a.Durable)
	}
	return nil
}

// remove removes a call from those that the end of the run must cancel.
func (o *outgoing) remove(id string) {
	if o.Run != nil {
		o.Run.Record.ended(id)
	}
}

// answered records that the run has the answer to a durable call: it no longer waits for it.
func (o *outgoing) answered(id string) {
	o.Run.Record.sent.answered(id)
	o.remove(id)
}

// cancel cancels a call whose answer is not needed any more. It does nothing if the task of
// a durable run is being stopped: when the run ends, [Agent.Stop] cancels its calls; when
// another worker continues the run, its handler sends the same calls again.
func (o *outgoing) cancel(call state.Call) {
	if o.Run != nil && o.Port.Stopped() {
		return
	}
	if o.Run != nil && !call.Live {
		o.Run.Record.sent.void(call.ID)
	}
	if o.stop(call) { // otherwise the worker that ends the run tries again
		o.remove(call.ID)
	}
}
