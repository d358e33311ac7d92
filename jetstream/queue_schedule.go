package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// The headers of a scheduled message (nats-server ADR-51). A message with headerSchedule
// stays in its stream until that time; then the server publishes it to
// headerScheduleTarget. The published message has headerScheduler, the subject of the
// scheduled message.
const (
	headerSchedule       = "Nats-Schedule"
	headerScheduleTarget = "Nats-Schedule-Target"
	headerScheduler      = "Nats-Scheduler"
	headerScheduleNext   = "Nats-Schedule-Next" // when it fires again, or scheduleOnce
	scheduleOnce         = "purge"
)

// A Scheduled is a delayed task that is not due yet, or that no worker has moved to [StreamWork]
// since then.
type Scheduled struct {
	Entity   string
	Priority string
	ID       string // the ID of its Submission
	Due      time.Time
	Stored   time.Time
	Seq      uint64 // in StreamSchedule
	Data     []byte
	Header   nats.Header
}

// schedule stores a delayed task. There is one message for each entity and ID, whatever
// the duplicate window is.
func (q *Queue) schedule(ctx context.Context, s Submission, due time.Time) (Submitted, error) {
	if s.ID == "" {
		return Submitted{}, fmt.Errorf("schedule a task of %s: it needs an id", s.Entity)
	}
	subj, err := q.m.Schedule(s.Entity, s.ID)
	if err != nil {
		return Submitted{}, fmt.Errorf("schedule: %w", err)
	}
	target, err := q.m.Due(s.Priority, s.Entity)
	if err != nil {
		return Submitted{}, fmt.Errorf("schedule: %w", err)
	}
	if err := q.roomToWait(ctx); err != nil {
		return Submitted{}, err
	}
	msg := &nats.Msg{Subject: subj, Data: s.Data, Header: api.PlainHeader(s.Header)}
	msg.Header.Set(headerSchedule, "@at "+due.UTC().Format(time.RFC3339))
	msg.Header.Set(headerScheduleTarget, target)
	msg.Header.Set(natsjs.ExpectedStreamHeader, q.waiting())
	msg.Header.Set(natsjs.ExpectedLastSubjSeqHeader, "0")
	ctx, stop := api.UntilDenied(ctx, q.js.Conn(), subj+`"`)
	defer stop()
	for range scheduleTries {
		ack, err := api.Publish(ctx, q.js, msg)
		switch {
		case err == nil:
			return Submitted{Seq: ack.Sequence, Due: due, Duplicate: ack.Duplicate}, nil
		case errors.Is(context.Cause(ctx), ErrDenied):
			return Submitted{}, api.Explain(q.js.Conn(), context.Cause(ctx), "schedule a task to %s", subj)
		case api.IsUnderWay(err): // the other write may never be stored
			return Submitted{}, fmt.Errorf("schedule a task to %s: %w: another write of it is under way: %w", subj, ErrUncertain, err)
		case !api.IsWrongSequence(err):
			return Submitted{}, api.Uncertain(api.Explain(q.js.Conn(), err, "schedule a task to %s", subj))
		}
		have, err := q.lastScheduled(ctx, subj)
		switch {
		case errors.Is(err, natsjs.ErrMsgNotFound):
			// It has just fallen due, and is in the stream under its other subject, or in
			// StreamWork. Or it was unscheduled after it had been stored.
			return Submitted{Duplicate: true}, nil
		case err != nil:
			return Submitted{}, api.Uncertain(api.Explain(q.js.Conn(), api.OfWrite(q.js.Conn(), subj, err), "look for %s", subj))
		case have.Genuine():
			s, err := q.readScheduled(have)
			return Submitted{Seq: s.Seq, Due: s.Due, Duplicate: err == nil}, err
		}
		// A stray. If it covers the task, the server has forgotten when the task falls due.
		msg.Header.Set(natsjs.ExpectedLastSubjSeqHeader, strconv.FormatUint(have.Seq, 10))
	}
	return Submitted{}, fmt.Errorf("schedule a task to %s: %w: another client keeps writing to it, or a server lags behind", subj, ErrUnavailable)
}

// scheduleTries is how often a delayed task is published over strays.
const scheduleTries = 8

// lastScheduled returns the last message on the subject of a delayed task, a stray too, or
// [natsjs.ErrMsgNotFound] if the stream's leader says that there is none: the replica that is read
// may lag behind.
func (q *Queue) lastScheduled(ctx context.Context, subj string) (Message, error) {
	ctx, cancel := api.Bounded(ctx)
	defer cancel()
	for {
		msg, err := api.Newest(ctx, q.js, q.waiting(), subj)
		if !errors.Is(err, natsjs.ErrMsgNotFound) {
			return msg, err
		}
		switch last, err := api.LastOfLeader(ctx, q.js, q.waiting(), subj, subj); {
		case err != nil:
			return Message{}, err
		case last == 0:
			return Message{}, natsjs.ErrMsgNotFound
		}
		if !pause.For(ctx, 10*time.Millisecond) {
			return Message{}, ctx.Err()
		}
	}
}

// roomToWait keeps StreamSchedule at about [MaxScheduled]: it reads the stream's size about
// once a second.
func (q *Queue) roomToWait(ctx context.Context) error {
	q.mu.Lock()
	bytes, old := q.scheduled, time.Since(q.looked) > time.Second
	q.mu.Unlock()
	if old {
		var info natsjs.StreamInfo
		if err := api.Request(ctx, q.js, "STREAM.INFO."+q.waiting(), nil, &info); err != nil {
			return api.Explain(q.js.Conn(), err, "schedule a task in %s", q.waiting())
		}
		bytes = info.State.Bytes
		q.mu.Lock()
		q.scheduled, q.looked = bytes, time.Now()
		q.mu.Unlock()
	}
	if bytes > MaxScheduled {
		return fmt.Errorf("schedule a task: %s holds %d MiB of tasks that wait: %w", q.waiting(), bytes/mib, ErrFull)
	}
	return nil
}

// Unschedule removes a delayed task. It fails with [ErrNotFound] if there is none: it was
// never scheduled, or has fallen due.
func (q *Queue) Unschedule(ctx context.Context, entity, id string) error {
	subj, err := q.m.Schedule(entity, id)
	if err != nil {
		return fmt.Errorf("unschedule: %w", err)
	}
	if q.fenced.Load() {
		return fmt.Errorf("unschedule %q of %s: %w", id, entity, ErrDenied)
	}
	purged, err := api.Purge{Filter: subj}.Do(ctx, q.js, q.waiting())
	if err != nil {
		return api.Uncertain(api.Explain(q.js.Conn(), err, "unschedule %q of %s", id, entity))
	}
	if purged == 0 {
		return fmt.Errorf("unschedule %q of %s: %w", id, entity, ErrNotFound)
	}
	return nil
}

// MayUnschedule returns the error that an Unschedule would return now, such as [ErrDenied] if this
// user may not remove delayed tasks; nil if an Unschedule can succeed.
func (q *Queue) MayUnschedule(ctx context.Context, entity string) error {
	err := q.Unschedule(ctx, entity, nuid.Next()) // there is no such task
	if errors.Is(err, ErrNotFound) && !errors.Is(err, natsjs.ErrStreamNotFound) {
		return nil
	}
	return err
}

// Scheduled lists the delayed tasks of one entity or, with "", of all, that are not due yet, the
// soonest first. [Queue.Due] lists the others.
func (q *Queue) Scheduled(ctx context.Context, entity string) ([]Scheduled, error) {
	all, err := q.delayed(ctx, entity, q.m.AllSchedule(), q.m.ScheduleOf, "scheduled", q.readScheduled)
	sorted.By(all, func(a, b Scheduled) int { return a.Due.Compare(b.Due) })
	return all, err
}

// delayed lists delayed tasks of one entity, or with "" those on all the subjects. It skips messages
// that read refuses, because the mesh did not write them.
func (q *Queue) delayed(ctx context.Context, entity, all string, of func(entity string) (string, error), what string, read func(Message) (Scheduled, error)) ([]Scheduled, error) {
	filter := all
	if entity != "" {
		var err error
		if filter, err = of(entity); err != nil {
			return nil, fmt.Errorf("list what is %s: %w", what, err)
		}
	}
	var found []Scheduled
	for msg, err := range api.Scan(ctx, q.js, q.waiting(), filter, 1) {
		if err != nil {
			return nil, err
		}
		if s, err := read(msg); err == nil {
			found = append(found, s)
		}
	}
	return found, nil
}

// FindScheduled returns a delayed task of an entity by its ID, or fails with
// [ErrNotFound], also if it has fallen due.
func (q *Queue) FindScheduled(ctx context.Context, entity, id string) (Scheduled, error) {
	subj, err := q.m.Schedule(entity, id)
	if err != nil {
		return Scheduled{}, fmt.Errorf("look for a delayed task: %w", err)
	}
	return q.getScheduled(ctx, subj)
}

func (q *Queue) getScheduled(ctx context.Context, subj string) (Scheduled, error) {
	msg, err := api.NewestPublished(ctx, q.js, q.waiting(), subj)
	if err != nil {
		return Scheduled{}, api.Explain(q.js.Conn(), err, "look for %s", subj)
	}
	return q.readScheduled(msg)
}

func (q *Queue) readScheduled(msg Message) (Scheduled, error) {
	at, err := q.m.Parse(msg.Subject)
	if err != nil || at.Kind != subject.Schedule {
		return Scheduled{}, fmt.Errorf("%q is no subject of a delayed task", msg.Subject)
	}
	to, err := q.m.Parse(msg.Header.Get(headerScheduleTarget))
	if err != nil || to.Kind != subject.Due {
		return Scheduled{}, fmt.Errorf("delayed task %s: its target %q is no subject of this mesh", msg.Subject, msg.Header.Get(headerScheduleTarget))
	}
	due, err := time.Parse(time.RFC3339, strings.TrimPrefix(msg.Header.Get(headerSchedule), "@at "))
	if err != nil {
		return Scheduled{}, fmt.Errorf("delayed task %s: %w", msg.Subject, err)
	}
	return Scheduled{
		Entity: to.Entity, Priority: to.Priority, ID: at.ID,
		Due: due, Stored: msg.Time, Seq: msg.Seq, Data: msg.Data, Header: api.PlainHeader(msg.Header),
	}, nil
}

func (q *Queue) waiting() string { return StreamSchedule + q.m.Suffix() }
