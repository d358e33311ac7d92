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
// stores E_CANCELLED for the sender, from this node's entity, and deletes the message. Another message
// with this id that waits is deleted too, and its sender gets the same. It is for operators, when
// the agent has no worker online that could apply a cancel. Package canceltree uses it. It fails with [jetstream.ErrNotFound] if no such task is queued, scheduled or due, and
// with [ErrBegun] if a worker has or may have begun the task, or has drawn it to move it to the queue.
//
// The reply is stored first, so that a task that has left the queue has one. If this process dies
// before the message is deleted, another CancelQueued deletes it. A scheduled task may fall due
// meanwhile: it is looked for again. A worker that starts meanwhile may draw the message. Therefore
// CancelQueued looks again at what the agent's workers have drawn, and for a record of the run, after
// it has deleted the message: it then fails with [ErrBegun]. In the worst case the sender gets
// E_CANCELLED and later a result.
func (c *Client) CancelQueued(ctx context.Context, entity, taskID, reason string) error {
	if c.cfg.Stores == nil {
		return sender.ErrLiveOnly
	}
	w, err := c.findWaiting(ctx, entity, taskID)
	if err != nil {
		return err
	}
	problem, err := c.withdrawal(reason)
	if err != nil {
		return err
	}
	return c.cancelWaiting(ctx, w, problem)
}

// withdrawal returns the E_CANCELLED of this node, or fails if no sender would accept it.
func (c *Client) withdrawal(reason string) (*envelope.Error, error) {
	problem := run.Cancelled(c.cfg.Entity, reason)
	if !c.s.Answers.Withdrawn(&envelope.Envelope{Type: envelope.TypeError, From: c.cfg.Entity, Payload: problem.Payload()}) {
		return nil, envelope.Errorf(envelope.CodeDenied, "%s is not an operator, so senders would reject its E_CANCELLED", c.cfg.Entity)
	}
	return problem, nil
}

// cancelWaiting withdraws a task that waits. If its message has left its place, it looks for the task again.
func (c *Client) cancelWaiting(ctx context.Context, w *waiting, problem *envelope.Error) error {
	for range withdrawTries {
		moved, err := c.withdraw(ctx, w, problem)
		if err != nil || !moved && !w.cut {
			return err
		}
		w, err = c.findWaiting(ctx, w.entity, w.id)
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
// delayed message was no longer in its place. Without an error no worker has drawn one of the others.
func (c *Client) withdraw(ctx context.Context, w *waiting, problem *envelope.Error) (moved bool, err error) {
	if err := c.mayRemove(ctx, w); err != nil {
		return false, err
	}
	id := state.ID{Entity: w.entity, Run: state.RunID(w.entity, w.id)}
	if err := c.unbegun(ctx, id); err != nil {
		return false, err
	}
	before, err := c.drawn(ctx, w)
	if err != nil {
		return false, err
	}
	for i, p := range w.places {
		if before[i].MayHave(p.seq) {
			return false, fmt.Errorf("%w, or another task of this agent: a message is unacknowledged", ErrBegun)
		}
	}
	for _, task := range w.tasks {
		if err := c.answerWithdrawn(ctx, task, problem); err != nil {
			return false, err
		}
	}
	if moved, err = c.remove(ctx, w); err != nil {
		return false, err
	}
	after, err := c.drawn(ctx, w)
	if err != nil {
		return false, err
	}
	for i, p := range w.places {
		if after[i].MayHaveDrawn(p.seq, before[i]) {
			return false, fmt.Errorf("%w, or another task of this agent: a worker drew a message while this one was removed", ErrBegun)
		}
	}
	return moved, c.unbegun(ctx, id)
}

// drawn returns for each place of a task what workers have drawn there.
func (c *Client) drawn(ctx context.Context, w *waiting) ([]jetstream.Drawn, error) {
	all := make([]jetstream.Drawn, len(w.places))
	for i, p := range w.places {
		if i > 0 && p.priority == w.places[i-1].priority {
			all[i] = all[i-1]
			continue
		}
		var err error
		if all[i], err = c.cfg.Stores.Queue.Drawn(ctx, w.entity, p.priority); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// CancelAllQueued withdraws all queued, scheduled and due tasks of an entity and returns their number. It
// skips messages that are not tasks. It continues after a task that cannot be withdrawn, for
// example because a worker has begun it; the error joins all failures.
func (c *Client) CancelAllQueued(ctx context.Context, entity, reason string) (done int, err error) {
	if c.cfg.Stores == nil {
		return 0, sender.ErrLiveOnly
	}
	problem, err := c.withdrawal(reason)
	if err != nil {
		return 0, err
	}
	tried := map[string]bool{}
	var failed []error
	for more := true; more; {
		found := search{entity: entity, limits: c.s.Answers.Limits, wants: func(id string) bool { return !tried[id] }}
		later, err := c.cfg.Stores.Queue.Scheduled(ctx, entity)
		for _, s := range later {
			found.see(s.Data, s.Header, s.ID, nil)
		}
		if err == nil {
			var unread error
			unread, err = c.searchDrawable(ctx, entity, &found)
			err = errors.Join(unread, err)
		}
		if err != nil {
			return done, errors.Join(append(failed, err)...)
		}
		for _, w := range found.waiting {
			tried[w.id] = true
			switch err := c.cancelWaiting(ctx, w, problem); {
			case err == nil:
				done++
			case !errors.Is(err, jetstream.ErrNotFound):
				failed = append(failed, fmt.Errorf("task %s: %w", w.id, err))
			}
		}
		more = found.cut
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

// waiting is a task that no worker has begun, and where its messages are. Another sender who knows its
// id may have submitted another task with it.
type waiting struct {
	entity, id string
	tasks      []submitted // those with the id; each is answered
	scheduled  bool
	places     []place // due, then queued; the same task may have been submitted again
	cut        bool    // there are more messages than a search holds
}

// submitted is a task as it was submitted.
type submitted struct {
	*envelope.Envelope
	digest string
	cbor   bool
}

// place is where a message waits that a worker may draw.
type place struct {
	priority string // of a queued message; "": the message is due
	seq      uint64
}

// search collects the tasks of an entity that wait. It looks for them in the order in which a task
// moves, so that it misses none: among the scheduled tasks, among those that are due, and in the queue.
type search struct {
	entity  string
	limits  envelope.Limits
	wants   func(id string) bool
	waiting []*waiting
	byID    map[string]*waiting
	known   map[string]bool // the digests of the tasks; they cover the id
	held    int             // bytes of messages
	cut     bool            // there are more tasks than a search holds; it begins no further one
}

// mostHeld is how many bytes of messages a search holds at the most.
const mostHeld = 64 << 20

// see records a message of a task that waits at a place; nil: it is scheduled. It skips what a worker
// rejects: a message that is no task of the entity, and a task whose id is too long for the subject of
// its reply. It also skips a message that was stored under another id than its task's.
func (s *search) see(data []byte, header nats.Header, id string, at *place) {
	env, inCBOR, err := wire.Decode(&nats.Msg{Data: data, Header: header}, s.limits)
	if err != nil || env.Type != envelope.TypeTask || env.To != s.entity || len(subject.Escape(env.ID)) > subject.MaxID {
		return
	}
	if id != "" && env.ID != id || !s.wants(env.ID) {
		return
	}
	w, digest := s.byID[env.ID], wire.TaskDigest(env)
	if w == nil || !s.known[digest] {
		if s.held > 0 && s.held+len(data) > mostHeld || s.cut && w == nil { // one with this id may have been left out
			if s.cut = true; w != nil {
				w.cut = true
			}
			return
		}
		if w == nil {
			w = &waiting{entity: s.entity, id: env.ID}
			s.waiting = append(s.waiting, w)
			if s.byID == nil {
				s.byID, s.known = map[string]*waiting{}, map[string]bool{}
			}
			s.byID[env.ID] = w
		}
		w.tasks, s.held, s.known[digest] = append(w.tasks, submitted{env, digest, inCBOR}), s.held+len(data), digest != ""
	}
	if at == nil {
		w.scheduled = true
	} else {
		w.places = append(w.places, *at)
	}
}

// searchDrawable looks among the tasks that are due, and in the queue. If those that are due cannot
// be read, it looks in the queue, and returns the error as unread.
func (c *Client) searchDrawable(ctx context.Context, entity string, s *search) (unread, err error) {
	due, unread := c.cfg.Stores.Queue.Due(ctx, entity)
	if errors.Is(unread, jetstream.ErrNotFound) {
		unread = nil
	}
	for _, d := range due {
		s.see(d.Data, d.Header, d.ID, &place{seq: d.Seq})
	}
	for _, priority := range subject.Priorities() {
		for msg, err := range c.cfg.Stores.Queue.Peek(ctx, priority, entity, 0) {
			if err != nil {
				return unread, err
			}
			s.see(msg.Data, msg.Header, "", &place{priority, msg.Seq})
		}
	}
	return unread, nil
}

// findWaiting looks for a task that waits, or fails with [jetstream.ErrNotFound]. A user who may not
// read scheduled tasks may withdraw queued ones.
func (c *Client) findWaiting(ctx context.Context, entity, taskID string) (*waiting, error) {
	found := search{entity: entity, limits: c.s.Answers.Limits, wants: func(id string) bool { return id == taskID }}
	s, err := c.cfg.Stores.Queue.FindScheduled(ctx, entity, taskID)
	if err == nil {
		found.see(s.Data, s.Header, s.ID, nil)
	} else if errors.Is(err, jetstream.ErrNotFound) {
		err = nil
	}
	unread, failed := c.searchDrawable(ctx, entity, &found)
	if failed == nil && len(found.waiting) > 0 {
		return found.waiting[0], nil
	}
	if err = errors.Join(err, unread, failed); err == nil {
		err = jetstream.ErrNotFound
	}
	return nil, fmt.Errorf("look for task %s of %s: %w", taskID, entity, err)
}

// mayRemove fails if this user may not remove the messages of a task.
func (c *Client) mayRemove(ctx context.Context, w *waiting) error {
	q := c.cfg.Stores.Queue
	var due, queued bool
	for _, p := range w.places {
		due, queued = due || p.priority == "", queued || p.priority != ""
	}
	var failed []error
	if queued {
		failed = append(failed, q.MayRemove(ctx))
	}
	if due {
		failed = append(failed, q.MayRemoveDue(ctx))
	}
	if w.scheduled {
		failed = append(failed, q.MayUnschedule(ctx, w.entity))
	}
	return errors.Join(failed...)
}

// remove removes the messages of a task, in the order in which they move. It returns moved if a
// delayed one was not there any more.
func (c *Client) remove(ctx context.Context, w *waiting) (moved bool, err error) {
	q := c.cfg.Stores.Queue
	if w.scheduled {
		if err := q.Unschedule(ctx, w.entity, w.id); errors.Is(err, jetstream.ErrNotFound) {
			moved = true
		} else if err != nil {
			return false, err
		}
	}
	for _, p := range w.places {
		remove := q.Remove
		if p.priority == "" {
			remove = q.RemoveDue
		}
		switch err := remove(ctx, p.seq); {
		case errors.Is(err, jetstream.ErrNotFound):
			moved = moved || p.priority == ""
		case err != nil:
			return false, err
		}
	}
	return moved, nil
}

// answerWithdrawn stores E_CANCELLED as the reply to a withdrawn task, unless the last reply on its
// subject is one that the task's sender takes.
func (c *Client) answerWithdrawn(ctx context.Context, task submitted, problem *envelope.Error) error {
	reply := task.Reply(envelope.TypeError, problem.Payload())
	reply.From = c.cfg.Entity
	var body []byte
	header, err := c.s.Encode(ctx, reply, false, task.cbor, &body)
	if err != nil {
		return err
	}
	msg, err := answers.Stored{Env: reply, Raw: body, CBOR: task.cbor, Entity: task.To, TaskID: task.ID, MsgID: "withdraw." + task.To + "/" + task.ID + "/" + task.digest, Task: task.Envelope, Header: header}.Message()
	if err != nil {
		return err
	}
	reader := c.readerFor(task.Envelope, ResultOptions{})
	return c.cfg.Stores.Replies.PublishUnless(ctx, msg, func(last jetstream.Message) bool { return !reader.another(last.Header) })
}
