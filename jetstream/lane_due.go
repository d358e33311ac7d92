package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
)

// dueBatch is how many delayed tasks a lane requests at once to move them.
const dueBatch = 32

// A lane requests delayed tasks while fewer than roomForDue wait to be moved: then there is room
// for the batch, and for one that hear has counted as received and not yet passed on.
// One that finds no room is returned to the server, which delivers it again at once.
const roomForDue = dueBatch

// move publishes delayed tasks that have fallen due to [StreamWork]. The server cannot do
// it: a scheduled message can only be published to its own stream, and a stream that
// refuses tasks when it is full cannot have scheduled messages.
func (r *laneRun) move(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			for { // nak the rest
				select {
				case d := <-r.due:
					_ = d.Nak(0)
				default:
					return
				}
			}
		case d := <-r.due:
			if len(r.due) == roomForDue-1 { // there is room again
				r.Wake()
			}
			err := r.q.moveDue(ctx, d)
			r.mu.Lock()
			if r.delayedErr = err; errors.Is(err, errNotDue) { // a fault of the message, not of the lane
				r.delayedErr = nil
			}
			r.mu.Unlock()
			switch {
			case err == nil:
				_ = d.Ack()
			case errors.Is(err, errNotDue):
				_ = d.Term(err.Error())
				if r.opts.Dropped != nil {
					r.opts.Dropped(d.Subject, err)
				}
			case ctx.Err() != nil:
				_ = d.Nak(0)
			default:
				// The stream is full or unavailable. If the message was stored all the
				// same, its Nats-Msg-Id keeps it from being stored twice.
				_ = d.Nak(dueRetry)
			}
		}
	}
}

// dueRetry is how long to wait before a task is moved again.
const dueRetry = 2 * time.Second

// errNotDue: the message does not come from a delayed task of the mesh.
var errNotDue = errors.New("not a delayed task")

func (q *Queue) moveDue(ctx context.Context, d *Delivery) error {
	at, err := q.m.Parse(d.Subject)
	if err != nil || at.Kind != subject.Due {
		return errNotDue
	}
	subj, err := q.m.Work(at.Priority, at.Entity)
	if err != nil {
		return errNotDue
	}
	if repeats(d.Header) {
		// It would come again and again, as a task with the same id.
		from := d.Header.Get(headerScheduler)
		switch err := q.endSchedule(ctx, from); {
		case errors.Is(err, ErrDenied): // it is dropped each time it comes
			return fmt.Errorf("%w: its schedule repeats, and an operator has to remove it: nats stream purge %s --subject %s", errNotDue, q.waiting(), from)
		case err != nil:
			return err
		}
		return fmt.Errorf("%w: its schedule repeats, and was removed", errNotDue)
	}
	from, err := q.scheduledAs(d.Header, at.Entity)
	if err != nil {
		return err
	}
	_, err = q.publish(ctx, q.message(subj, Submission{Entity: from.Entity, ID: from.ID, Data: d.Data, Header: d.Header}))
	return api.Explain(q.js.Conn(), err, "move a delayed task to %s", subj)
}

// repeats reports whether the schedule of a message that is due fires again.
func repeats(h nats.Header) bool {
	next := h.Get(headerScheduleNext)
	return next != "" && next != scheduleOnce
}

// scheduledAs returns the schedule of a message that is due, or errNotDue if it is not one of the
// entity. Its subject contains the entity and the id. The server sets this header, and refuses it
// from publishers. A schedule may target any subject of the stream: a user who may schedule for
// one entity must not reach the queue of another by it.
func (q *Queue) scheduledAs(h nats.Header, entity string) (subject.Address, error) {
	from, err := q.m.Parse(h.Get(headerScheduler))
	if err != nil || from.Kind != subject.Schedule || from.Entity != entity {
		return subject.Address{}, errNotDue
	}
	return from, nil
}

// endSchedule removes a schedule, by its subject.
func (q *Queue) endSchedule(ctx context.Context, subj string) error {
	at, err := q.m.Parse(subj)
	if err != nil || at.Kind != subject.Schedule {
		return errNotDue // the stream may have subjects that are not the mesh's
	}
	err = q.Unschedule(ctx, at.Entity, at.ID)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
