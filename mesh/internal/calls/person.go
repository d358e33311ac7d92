package calls

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// askPerson is a call to a person: the task goes into the inbox, and the
// answer is what the person stores on the task's reply subject
// (docs/nats-binding.md, "People").
//
// In a durable task the call does not block: it fails with a [PendingError] until the
// answer is stored or the time for it is over. In a live task it blocks.
func (o *outgoing) askPerson(ctx context.Context) (*Answer, error) {
	if d := o.stores(); d == nil || d.Inbox == nil {
		return nil, fault.NoInbox
	}
	o.c.Intent = cmp.Or(o.c.Intent, intents.HumanAsk)
	o.c.OnStream = nil // people do not stream
	task, err := o.newTask()
	if err != nil {
		return nil, err
	}
	if err := requires.CheckSchema(task); err != nil {
		return nil, err
	}
	a := &Answer{TaskID: task.ID, Entity: o.c.To, Durable: true, Began: time.Now()}
	o.a = a
	if o.Run == nil {
		err = o.askLive(ctx, task)
	} else {
		task.ID = o.id(o.c.Key)
		a.TaskID = task.ID
		err = o.askDurable(ctx, task)
	}
	a.Ended = time.Now()
	readReply(a)
	return a, err
}

// askDurable sends the task once, and looks for the answer each time.
func (o *outgoing) askDurable(ctx context.Context, task *envelope.Envelope) error {
	sent := &o.Run.Record.sent
	w, asked := sent.find(o.Run.Port.Checkpoint(), task.ID)
	if !asked {
		// An earlier owner may have sent it and died before it recorded that.
		w = state.Wait{Entity: o.c.To, TaskID: task.ID, Key: o.c.Key, Schema: string(requires.SchemaOf(task))}
	}
	o.a.Began = w.Asked
	if w.Void {
		return noAnswer(w.Entity)
	}
	var answer *envelope.Envelope
	err := o.Port.Persist(ctx, func() (err error) {
		answer, err = o.Answers.First(ctx, o.Stores.Replies, w, task.From, task.Corr)
		return err
	})
	switch {
	case err != nil:
		return err
	case answer != nil:
		sent.answered(w.TaskID)
		return takePersonsReply(o.a, answer)
	case !asked:
		if w, err = o.sendToPerson(ctx, task, o.Now()); err != nil {
			return err
		}
		o.a.Began = w.Asked
		sent.note(w)
	case run.Expired(w, o.Now()):
		sent.void(w.TaskID)
		o.Agent.Withdraw(ctx, o.Envelope, w, outOfTime(o.c))
		return noAnswer(w.Entity)
	}
	w.Answered = false // the server no longer has the answer
	return &PendingError{w}
}

// sendToPerson puts a task into a person's inbox. It returns the wait for the answer, with
// the time until which an answer counts. now is the server's time.
func (o *outgoing) sendToPerson(ctx context.Context, task *envelope.Envelope, now time.Time) (state.Wait, error) {
	timeout, _ := o.times(ctx, time.Now())
	if o.Run != nil { // the answer may come until the run's deadline, later than the handler's
		left := o.Run.Deadline.Sub(now)
		timeout = left - min(left/20, sender.Grace)
		if o.c.Timeout > 0 {
			timeout = min(timeout, o.c.Timeout)
		}
	}
	w := state.Wait{Entity: o.c.To, TaskID: task.ID, Key: o.c.Key, Schema: string(requires.SchemaOf(task)), Until: now.Add(timeout).Round(time.Millisecond)}
	task.Requires = withMember(task.Requires, requires.AnswerBy, wire.MustJSON(state.Time(w.Until)))
	// The inbox compares ts with the time at which the server stored the task.
	task.TS = tsOf(now)
	if err := o.ready(task, timeout, false); err != nil { // signs
		return w, err
	}
	if o.c.Begun != nil {
		o.c.Begun(task.ID, true)
	}
	late := false
	err := o.Port.Persist(ctx, func() (err error) { // safe to repeat: the inbox shows a task with the same id once
		if late { // after an outage the inbox would refuse the old signature as stale
			task.TS, task.Sig = tsOf(o.Now()), nil
			if err := o.sign(task, false); err != nil {
				return err
			}
		}
		late = true
		// If the caller gives up meanwhile, the person may have the task: only the answer says that it is
		// to be withdrawn.
		w.Asked, err = o.Agent.post(context.WithoutCancel(ctx), task)
		return err
	})
	if err != nil {
		return w, err
	}
	o.Port.PublishStep(intents.RunWaiting, intents.StepEvent{Step: o.c.Key, To: o.c.To, Child: task.ID, Durable: o.Run != nil, Until: state.Time(w.Until)})
	return w, nil
}

// tsOf returns a time as the field ts has it.
func tsOf(t time.Time) string { return t.UTC().Format(envelope.TimeLayout) }

// noAnswer returns the error of a call that a person did not answer in time. It is not
// retryable, because a retry of the task would ask all people again.
func noAnswer(person string) *envelope.Error {
	e := envelope.Errorf(envelope.CodeTimeout, "%s did not answer in time", clip.Text(person, 128))
	e.Retryable = false
	return e
}

// takePersonsReply is takeReply for the answer of a person. It turns a retryable error into
// E_DECLINED, which is final: otherwise a retry would ask the person again, as for [noAnswer].
func takePersonsReply(a *Answer, reply *envelope.Envelope) error {
	err := takeReply(a, reply)
	var problem *envelope.Error
	if errors.As(err, &problem) && problem.Retryable {
		return envelope.Errorf(envelope.CodeDeclined, "%s", problem.Message)
	}
	return err
}

// outOfTime returns the reason that a person is shown when a task is withdrawn because
// its time is over.
func outOfTime(c *Call) string {
	var to string
	if raw := c.Requires[requires.EscalateTo]; raw != nil && json.Unmarshal(raw, &to) == nil && to != "" {
		return "there was no answer in time; it is with " + clip.Text(to, 128) + " now"
	}
	return "there was no answer in time"
}

// askLive waits for the answer.
func (o *outgoing) askLive(ctx context.Context, task *envelope.Envelope) error {
	d := o.Stores
	follower, err := d.Replies.Open(o.c.To, task.ID)
	if err != nil {
		return err
	}
	defer follower.Close()
	now, err := d.Clock.Now(ctx)
	if err != nil {
		return err
	}
	w, err := o.sendToPerson(ctx, task, now)
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, w.Until.Sub(now))
	defer cancel()
	for msg, err := range follower.Messages(wait, jetstream.FollowOptions{}) {
		if err != nil {
			return err
		}
		reply, err := o.Answers.Stored(o.c.To, task.ID, task.Corr, task.From, &nats.Msg{Data: msg.Data, Header: msg.Header}, msg.Time, nil)
		if err != nil || !reply.Type.Terminal() {
			continue // not a valid reply of this person
		}
		if !o.Answers.Fits(w.Schema, reply) {
			continue
		}
		return takePersonsReply(o.a, reply)
	}
	why := outOfTime(o.c)
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		why = "the task that needed it has ended"
	}
	over, stop := context.WithTimeout(context.WithoutCancel(ctx), sched.StoreTimeout)
	defer stop()
	o.Agent.Withdraw(over, o.Envelope, w, why)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return noAnswer(o.c.To)
}
