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

// CancelQueued cancels a durable task that is queued, scheduled or due and that no worker has begun. It
// stores E_CANCELLED for the sender, from this node's entity, and deletes the message. It is for
// operators, when the agent has no worker online that could apply a cancel. Package canceltree
// uses it. It fails with [jetstream.ErrNotFound] if no such task is queued, scheduled or due, and
// with [ErrBegun] if a worker has or may have begun the task, or has drawn it to move it to the queue.
//
// The reply is stored first, so that a task that has left the queue has one. If this process dies
// before the message is deleted, another CancelQueued deletes it. A scheduled task may fall due
// meanwhile: it is looked for again. A worker that starts meanwhile may draw the message. Therefore
// CancelQueued looks again at what the agent's workers have drawn, and for a record of the run, after
// it has deleted the message: it then fails with [ErrBegun]. In the worst case the sender gets
// E_CANCELLED and later a result.
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
	for range withdrawTries {
		if moved, err := c.withdraw(ctx, w, entity, taskID, problem); err != nil || !moved {
			return err
		}
		w, err = c.findWaiting(ctx, entity, taskID)
		if errors.Is(err, jetstream.ErrNotFound) {
			break
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w, or the task has just been withdrawn: its message has left its place", ErrBegun)
}

// withdrawTries is how often a task is looked for: it may be scheduled, then due, then queued.
const withdrawTries = 4

// withdraw stores the reply of a task that waits, and removes its messages. It returns moved if a
// message was no longer in its place. Without an error no worker has drawn one of the others.
func (c *Client) withdraw(ctx context.Context, w waiting, entity, taskID string, problem *envelope.Error) (moved bool, err error) {
	d := c.cfg.Stores
	if err := c.mayRemove(ctx, w, entity); err != nil {
		return false, err
	}
	id := state.ID{Entity: entity, Run: state.RunID(entity, taskID)}
	if err := c.unbegun(ctx, id); err != nil {
		return false, err
	}
	before, err := d.Queue.Drawn(ctx, entity, len(w.due) > 0)
	if err != nil {
		return false, err
	}
	if before.Unacked > 0 {
		return false, fmt.Errorf("%w, or another task of this agent: the queue has an unacknowledged message", ErrBegun)
	}
	if err := c.answerWithdrawn(ctx, w.task, w.cbor, problem); err != nil {
		return false, err
	}
	if moved, err = c.remove(ctx, w, entity, taskID); err != nil {
		return false, err
	}
	after, err := d.Queue.Drawn(ctx, entity, len(w.due) > 0)
	if err != nil {
		return false, err
	}
	if after != before {
		return false, fmt.Errorf("%w, or another task of this agent: a worker drew a message while this one was removed", ErrBegun)
	}
	return moved, c.unbegun(ctx, id)
}

// CancelAllQueued withdraws all queued, scheduled and due tasks of an entity and returns their number. It
// skips messages that are not tasks. It continues after a task that cannot be withdrawn, for
// example because a worker has begun it; the error joins all failures.
func (c *Client) CancelAllQueued(ctx context.Context, entity, reason string) (int, error) {
	d := c.cfg.Stores
	if d == nil {
		return 0, sender.ErrLiveOnly
	}
	later, err := d.Queue.Scheduled(ctx, entity)
	if err != nil {
		return 0, err
	}
	due, err := d.Queue.Due(ctx, entity)
	if err != nil {
		return 0, err
	}
	ids, err := c.QueuedTasks(ctx, entity)
	if err != nil {
		return 0, err
	}
	for _, s := range append(later, due...) { // a task that is in two places is not found again
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
// worker has begun is one of them until its message is acknowledged; a scheduled or due task is none.
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

// waiting is a task that no worker has drawn, and where its messages are.
type waiting struct {
	task        *envelope.Envelope
	cbor        bool
	scheduled   bool
	due, queued []uint64 // sequences: the same task may have been submitted again
}

// read takes the task from a message, or returns false if the message is not this task.
func (w *waiting) read(msg *nats.Msg, taskID string, limits envelope.Limits) bool {
	env, inCBOR, err := wire.Decode(msg, limits)
	if err != nil || env.ID != taskID {
		return false // also a message that is not a task: a worker rejects it
	}
	w.task, w.cbor = env, inCBOR
	return true
}

// findWaiting looks for a task in the queue, among the scheduled tasks and among those that are due. If
// it is in none of these places, findWaiting looks once more in the queue: the task may have been moved there.
func (c *Client) findWaiting(ctx context.Context, entity, taskID string) (w waiting, err error) {
	if err := c.findQueued(ctx, &w, entity, taskID); err != nil {
		return w, err
	}
	limits := c.s.Answers.Limits
	s, err := c.cfg.Stores.Queue.FindScheduled(ctx, entity, taskID)
	if err == nil {
		w.scheduled = w.read(&nats.Msg{Data: s.Data, Header: s.Header}, taskID, limits)
	}
	if err == nil || errors.Is(err, jetstream.ErrNotFound) {
		var due []jetstream.Scheduled
		if due, err = c.cfg.Stores.Queue.Due(ctx, entity); err == nil {
			for _, s := range due {
				if s.ID == taskID && w.read(&nats.Msg{Data: s.Data, Header: s.Header}, taskID, limits) {
					w.due = append(w.due, s.Seq)
				}
			}
		}
	}
	switch {
	case w.task != nil: // a user who may not read scheduled tasks may withdraw queued ones
		return w, nil
	case err != nil && !errors.Is(err, jetstream.ErrNotFound):
		return w, err
	}
	if err := c.findQueued(ctx, &w, entity, taskID); err != nil || w.task != nil {
		return w, err
	}
	return w, fmt.Errorf("look for task %s of %s: %w", taskID, entity, jetstream.ErrNotFound)
}

func (c *Client) findQueued(ctx context.Context, w *waiting, entity, taskID string) error {
	for _, priority := range subject.Priorities() {
		for msg, err := range c.cfg.Stores.Queue.Peek(ctx, priority, entity, 0) {
			if err != nil {
				return err
			}
			if w.read(&nats.Msg{Data: msg.Data, Header: msg.Header}, taskID, c.s.Answers.Limits) {
				w.queued = append(w.queued, msg.Seq)
			}
		}
	}
	return nil
}

// mayRemove fails if this user may not remove the messages of a task.
func (c *Client) mayRemove(ctx context.Context, w waiting, entity string) error {
	q := c.cfg.Stores.Queue
	var failed []error
	if len(w.queued) > 0 {
		failed = append(failed, q.MayRemove(ctx))
	}
	if len(w.due) > 0 {
		failed = append(failed, q.MayRemoveDue(ctx))
	}
	if w.scheduled {
		failed = append(failed, q.MayUnschedule(ctx, entity))
	}
	return errors.Join(failed...)
}

// remove removes the messages of a task. It returns moved if a delayed one was not there any more.
func (c *Client) remove(ctx context.Context, w waiting, entity, taskID string) (moved bool, err error) {
	q := c.cfg.Stores.Queue
	if w.scheduled { // in the order in which a message moves
		if err := q.Unschedule(ctx, entity, taskID); errors.Is(err, jetstream.ErrNotFound) {
			moved = true
		} else if err != nil {
			return false, err
		}
	}
	for _, seq := range w.due {
		if err := q.RemoveDue(ctx, seq); errors.Is(err, jetstream.ErrNotFound) {
			moved = true
		} else if err != nil {
			return false, err
		}
	}
	for _, seq := range w.queued {
		if err := q.Remove(ctx, seq); err != nil && !errors.Is(err, jetstream.ErrNotFound) {
			return false, err
		}
	}
	return moved, nil
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
