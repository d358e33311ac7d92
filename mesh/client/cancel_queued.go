package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// ErrBegun: the task cannot be withdrawn, because a worker has or may have begun it.
var ErrBegun = errors.New("a worker has begun the task")

// CancelQueued cancels a durable task that is queued or scheduled and that no worker has begun. It
// stores E_CANCELLED for the sender, from this node's entity, and deletes the message. It is for
// operators, when the agent has no worker online that could apply a cancel. Package canceltree
// uses it. It fails with [jetstream.ErrNotFound] if no such task is queued or scheduled, and
// with [ErrBegun] if a worker has or may have begun the task.
//
// The reply is stored first, so that a task that has left the queue has one. If this process dies
// before the message is deleted, another CancelQueued deletes it. A worker that starts meanwhile may
// draw the message. Therefore CancelQueued looks for a record of the run again after it has
// deleted the message. In the worst case the sender gets E_CANCELLED and later a result.
func (c *Client) CancelQueued(ctx context.Context, entity, taskID, reason string) error {
	d := c.cfg.Stores
	if d == nil {
		return sender.ErrLiveOnly
	}
	w, err := c.findWaiting(ctx, entity, taskID)
	if err != nil {
		return err
	}
	problem := run.Cancelled(c.cfg.Entity, reason)
	if !c.s.Answers.Withdrawn(&envelope.Envelope{Type: envelope.TypeError, From: c.cfg.Entity, Payload: problem.Payload()}) {
		return envelope.Errorf(envelope.CodeDenied, "%s is not an operator, so senders would reject its E_CANCELLED", c.cfg.Entity)
	}
	if err := w.mayTake(); err != nil {
		return err
	}
	id := state.ID{Entity: entity, Run: state.RunID(entity, taskID)}
	if err := c.unbegun(ctx, id); err != nil {
		return err
	}
	if inHand, err := d.Queue.InHand(ctx, entity); err != nil {
		return err
	} else if inHand > 0 {
		return fmt.Errorf("%w, or another task of this agent: the queue has an unacknowledged message", ErrBegun)
	}
	if err := c.answerWithdrawn(ctx, w.task, w.cbor, problem); err != nil {
		return err
	}
	if err := w.take(); err != nil {
		return err
	}
	return c.unbegun(ctx, id)
}

// CancelAllQueued withdraws all queued and scheduled tasks of an entity and returns their number. It
// skips messages that are not tasks. It continues after a task that cannot be withdrawn, for
// example because a worker has begun it; the error joins all failures.
func (c *Client) CancelAllQueued(ctx context.Context, entity, reason string) (int, error) {
	d := c.cfg.Stores
	if d == nil {
		return 0, sender.ErrLiveOnly
	}
	ids, err := c.QueuedTasks(ctx, entity)
	if err != nil {
		return 0, err
	}
	later, err := d.Queue.Scheduled(ctx, entity)
	if err != nil {
		return 0, err
	}
	for _, s := range later {
		ids = append(ids, s.ID)
	}
	done := 0
	var failed []error
	for _, id := range ids {
		switch err := c.CancelQueued(ctx, entity, id, reason); {
		case err == nil:
			done++
		case !errors.Is(err, jetstream.ErrNotFound):
			failed = append(failed, fmt.Errorf("task %s: %w", id, err))
		}
	}
	return done, errors.Join(failed...)
}

// QueuedTasks returns the ids of the tasks in the queue of an entity, each once. A task that a
// worker has begun is one of them until its message is acknowledged; a scheduled task is none.
// Messages that are not tasks are skipped.
func (c *Client) QueuedTasks(ctx context.Context, entity string) (ids []string, err error) {
	d := c.cfg.Stores
	if d == nil {
		return nil, sender.ErrLiveOnly
	}
	seen := map[string]bool{}
	for _, priority := range subject.Priorities() {
		for msg, err := range d.Queue.Peek(ctx, priority, entity, 0) {
			if err != nil {
				return nil, err
			}
			if env, _, err := wire.Decode(&nats.Msg{Data: msg.Data, Header: msg.Header}, c.s.Answers.Limits); err == nil && !seen[env.ID] {
				seen[env.ID] = true
				ids = append(ids, env.ID)
			}
		}
	}
	return ids, nil
}

// unbegun returns ErrBegun if the run has a record.
func (c *Client) unbegun(ctx context.Context, id state.ID) error {
	_, err := c.cfg.Stores.States.Get(ctx, id)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return nil
	case err == nil:
		return ErrBegun
	}
	return err
}

// waiting is a task that no worker has drawn.
type waiting struct {
	task    *envelope.Envelope
	cbor    bool
	mayTake func() error // fails if this user may not remove the task's messages
	take    func() error // removes them
}

// findWaiting looks for a task in the queue and among the scheduled tasks.
func (c *Client) findWaiting(ctx context.Context, entity, taskID string) (w waiting, err error) {
	d := c.cfg.Stores
	var seqs []uint64 // the same task may have been submitted again
	for _, priority := range subject.Priorities() {
		for msg, err := range d.Queue.Peek(ctx, priority, entity, 0) {
			if err != nil {
				return w, err
			}
			env, inCBOR, err := wire.Decode(&nats.Msg{Data: msg.Data, Header: msg.Header}, c.s.Answers.Limits)
			if err != nil || env.ID != taskID {
				continue // also a message that is not a task: a worker rejects it
			}
			w.task, w.cbor = env, inCBOR
			seqs = append(seqs, msg.Seq)
		}
	}
	if w.task != nil {
		w.mayTake = func() error { return d.Queue.MayRemove(ctx) }
		w.take = func() error {
			for _, seq := range seqs {
				if err := d.Queue.Remove(ctx, seq); err != nil && !errors.Is(err, jetstream.ErrNotFound) {
					return err
				}
			}
			return nil
		}
		return w, nil
	}
	s, err := d.Queue.FindScheduled(ctx, entity, taskID)
	if err != nil {
		return w, err
	}
	if w.task, w.cbor, err = wire.Decode(&nats.Msg{Data: s.Data, Header: s.Header}, c.s.Answers.Limits); err != nil {
		return w, err
	}
	w.mayTake = func() error { return d.Queue.MayUnschedule(ctx, entity) }
	w.take = func() error { return d.Queue.Unschedule(ctx, entity, taskID) }
	return w, nil
}

// answerWithdrawn stores E_CANCELLED as the reply to a withdrawn task.
func (c *Client) answerWithdrawn(ctx context.Context, task *envelope.Envelope, cbor bool, problem *envelope.Error) error {
	reply := task.Reply(envelope.TypeError, problem.Payload())
	reply.From = c.cfg.Entity
	var body []byte
	header, err := c.s.Encode(ctx, reply, false, cbor, &body)
	if err != nil {
		return err
	}
	msg, err := answers.Stored{Env: reply, Raw: body, CBOR: cbor, Entity: task.To, TaskID: task.ID, MsgID: "withdraw." + task.To + "/" + task.ID, Task: task, Header: header}.Message()
	if err != nil {
		return err
	}
	_, err = c.cfg.Stores.Replies.PublishAfter(ctx, msg, 0)
	if errors.Is(err, jetstream.ErrExists) {
		return nil // the task has a reply already
	}
	return err
}
