package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// dueBatch is how many delayed tasks a lane takes at once to move them.
const dueBatch = 32

// move publishes delayed tasks whose time has come to [StreamWork]. A schedule
// cannot publish to another stream than its own, and one that refuses tasks
// when it is full can have no schedules.
func (r *laneRun) move(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			for { // give back what is left
				select {
				case d := <-r.due:
					_ = d.Nak(0)
				default:
					return
				}
			}
		case d := <-r.due:
			err := r.q.moveDue(ctx, d)
			r.mu.Lock()
			if r.snag = err; errors.Is(err, errNotDue) { // the lane is well
				r.snag = nil
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
				// The stream is full, or away. What was stored after all is
				// not stored twice.
				_ = d.Nak(dueRetry)
			}
		}
	}
}

// dueRetry is when to try again to move a task.
const dueRetry = 2 * time.Second

// errNotDue is for messages that no delayed task of ours makes.
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
	if next := d.Header.Get(headerScheduleNext); next != "" && next != scheduleOnce {
		// It would come again for ever, as a task of the same id.
		from := d.Header.Get(headerScheduler)
		switch err := q.endSchedule(ctx, from); {
		case errors.Is(err, ErrDenied): // each time it comes it is dropped
			return fmt.Errorf("%w: its schedule repeats, and an operator has to take it away: nats stream purge %s --subject %s", errNotDue, q.waiting(), from)
		case err != nil:
			return err
		}
		return fmt.Errorf("%w: its schedule repeats, and was taken away", errNotDue)
	}
	// The schedule's subject names the entity and the id. The server writes it, and
	// refuses it from others. A schedule may have any target in the stream: who may
	// schedule for one entity must not so reach the queue of another.
	from, err := q.m.Parse(d.Header.Get(headerScheduler))
	if err != nil || from.Kind != subject.Schedule || from.Entity != at.Entity {
		return errNotDue
	}
	msg := &nats.Msg{Subject: subj, Data: d.Data, Header: plainHeader(d.Header)}
	msg.Header.Set(natsjs.MsgIDHeader, workID(from.Entity, from.ID))
	_, err = q.publish(ctx, msg)
	return explain(q.js.Conn(), err, "move a delayed task to %s", subj)
}

// endSchedule takes a schedule away, by its subject.
func (q *Queue) endSchedule(ctx context.Context, subj string) error {
	at, err := q.m.Parse(subj)
	if err != nil || at.Kind != subject.Schedule {
		return errNotDue // where the stream has subjects that are not the mesh's
	}
	err = q.Unschedule(ctx, at.Entity, at.ID)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
