package jetstream

import (
	"context"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
)

// Due lists the delayed tasks of one entity or, with "", of all, that have fallen due and that no
// worker has moved to [StreamWork] yet, the oldest first. Their Due and Stored are when the server
// published them as due. A message that a worker would drop is not one of them. A task is never
// missing from [Queue.Scheduled], then Due, then [Queue.Peek], read in this order: it is in the
// next place before it leaves the one before. Any replica may answer, as for [Queue.Peek]. Due
// needs permission for $JS.API.DIRECT.GET.<stream>.
func (q *Queue) Due(ctx context.Context, entity string) ([]Scheduled, error) {
	return q.delayed(ctx, entity, q.m.AllDue(), q.m.DueOf, "due", q.readDue)
}

func (q *Queue) readDue(msg Message) (Scheduled, error) {
	at, err := q.m.Parse(msg.Subject)
	if err != nil || at.Kind != subject.Due || repeats(msg.Header) {
		return Scheduled{}, errNotDue
	}
	from, err := q.scheduledAs(msg.Header, at.Entity)
	if err != nil {
		return Scheduled{}, err
	}
	return Scheduled{
		Entity: at.Entity, Priority: at.Priority, ID: from.ID,
		Due: msg.Time, Stored: msg.Time, Seq: msg.Seq, Data: msg.Data, Header: api.PlainHeader(msg.Header),
	}, nil
}

// RemoveDue deletes a message that [Queue.Due] lists, or fails with [ErrNotFound]. It needs
// permission for $JS.API.STREAM.MSG.DELETE of [StreamSchedule]: it is for operators.
func (q *Queue) RemoveDue(ctx context.Context, seq uint64) error {
	return remove(ctx, q.js, q.waiting(), seq)
}

// MayRemoveDue is [Queue.MayRemove] for [Queue.RemoveDue].
func (q *Queue) MayRemoveDue(ctx context.Context) error { return q.mayRemove(ctx, q.waiting()) }
