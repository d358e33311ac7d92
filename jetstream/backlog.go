package jetstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A Backlog counts the tasks of one entity on the durable lane.
type Backlog struct {
	Entity     string
	Priorities []PriorityBacklog // all four, the most urgent first

	Scheduled int // delayed tasks that are not due yet
	Due       int // delayed tasks that are due and that no worker has moved yet
	Dead      int // tasks with a dead letter; if there are very many, also those that were retried after one
}

// A PriorityBacklog counts the tasks of one priority.
type PriorityBacklog struct {
	Priority string

	// Consumer is false if the consumer does not exist: a worker creates it when the first
	// task comes. Pending counts all messages then.
	Consumer bool
	Paused   bool

	Pending     int       // tasks that were never delivered
	Unacked     int       // tasks that were delivered and not acknowledged
	Redelivered int       // those of Unacked that were delivered more than once
	Oldest      time.Time // when the oldest of Pending was stored; zero if there are none
	OldestDrawn time.Time // the same of Unacked
	Waiting     int       // open requests for tasks: about one for each idle worker
}

// Pending counts the tasks that were never delivered.
func (b Backlog) Pending() int { return b.sum(func(p PriorityBacklog) int { return p.Pending }) }

// Unacked counts the tasks that were delivered and not acknowledged.
func (b Backlog) Unacked() int { return b.sum(func(p PriorityBacklog) int { return p.Unacked }) }

// Redelivered counts the unacknowledged tasks that were delivered more than once.
func (b Backlog) Redelivered() int {
	return b.sum(func(p PriorityBacklog) int { return p.Redelivered })
}

func (b Backlog) sum(of func(PriorityBacklog) int) int {
	n := 0
	for _, p := range b.Priorities {
		n += of(p)
	}
	return n
}

// Oldest returns when the oldest pending task was stored; zero if there is none.
func (b Backlog) Oldest() time.Time {
	return b.first(func(p PriorityBacklog) time.Time { return p.Oldest })
}

// OldestDrawn returns when the oldest unacknowledged task was stored; zero if there is none.
func (b Backlog) OldestDrawn() time.Time {
	return b.first(func(p PriorityBacklog) time.Time { return p.OldestDrawn })
}

func (b Backlog) first(of func(PriorityBacklog) time.Time) (first time.Time) {
	for _, p := range b.Priorities {
		if at := of(p); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// Backlog returns the backlogs of the named entities or, without names, of all that have
// a durable lane, a task or a dead letter, ordered by name. A named entity is in the result
// even if it has no tasks.
//
// It needs permission for $JS.API.CONSUMER.LIST.<stream> and $JS.API.STREAM.INFO of the
// lane's streams and of [BucketLanes], and for $JS.API.DIRECT.GET of [StreamWork] to find the oldest tasks.
// Its cost grows with the number of consumers and of scheduled or dead tasks, not with
// the number of pending tasks.
func (q *Queue) Backlog(ctx context.Context, entities ...string) ([]Backlog, error) {
	b := &backlogs{q: q, of: map[string]*Backlog{}}
	for _, e := range entities {
		if err := subject.ValidateEntity(e); err != nil {
			return nil, fmt.Errorf("backlog: %w", err)
		}
		b.entity(e)
	}
	if b.closed = len(entities) > 0; !b.closed {
		idle, err := q.registered(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range idle {
			b.entity(e)
		}
	}
	if err := b.consumers(ctx); err != nil {
		return nil, err
	}
	for _, count := range []struct {
		stream, filter string
		add            func(a subject.Address, n int)
	}{
		{q.name(), q.m.AllWork(), b.undelivered},
		{q.waiting(), q.m.AllSchedule(), func(a subject.Address, n int) { b.add(a.Entity, func(l *Backlog) { l.Scheduled += n }) }},
		{q.waiting(), q.m.AllDue(), func(a subject.Address, n int) { b.add(a.Entity, func(l *Backlog) { l.Due += n }) }},
		{StreamDead + q.m.Suffix(), q.m.AllDead(), func(a subject.Address, _ int) { b.add(a.Entity, func(l *Backlog) { l.Dead++ }) }},
	} {
		subjects, err := api.Subjects(ctx, q.js, count.stream, count.filter)
		if errors.Is(err, ErrNotFound) && count.stream != q.name() {
			continue // an older topology
		}
		if err != nil {
			return nil, err
		}
		for s, n := range subjects {
			if a, err := q.m.Parse(s); err == nil { // a permit's subject is no letter's
				count.add(a, n)
			}
		}
	}
	if err := b.ages(ctx); err != nil {
		return nil, err
	}
	all := make([]Backlog, 0, len(b.of))
	for _, l := range b.of {
		all = append(all, *l)
	}
	sorted.By(all, func(x, y Backlog) int { return strings.Compare(x.Entity, y.Entity) })
	return all, nil
}

// Undrawn counts the messages of [StreamWork], by subject, whose subject has no valid entity and
// priority, so that no worker draws them. Since topology 9 the stream does not capture subjects
// with an unknown priority.
func (q *Queue) Undrawn(ctx context.Context) (map[string]int, error) {
	subjects, err := api.Subjects(ctx, q.js, q.name(), q.m.AllWork())
	maps.DeleteFunc(subjects, func(s string, _ int) bool {
		a, err := q.m.Parse(s)
		return err == nil && a.Kind == subject.Work
	})
	return subjects, err
}

// backlogs collects the backlogs.
type backlogs struct {
	q      *Queue
	of     map[string]*Backlog
	closed bool // entities that are not in of are ignored
	drawn  []natsjs.ConsumerInfo
}

// entity returns an entity's backlog, or nil if the entity was not asked for.
func (b *backlogs) entity(name string) *Backlog {
	l := b.of[name]
	if l == nil && !b.closed {
		l = &Backlog{Entity: name}
		for _, p := range draws {
			l.Priorities = append(l.Priorities, PriorityBacklog{Priority: p.name})
		}
		b.of[name] = l
	}
	return l
}

func (b *backlogs) add(name string, to func(*Backlog)) {
	if l := b.entity(name); l != nil {
		to(l)
	}
}

func (b *backlogs) priority(a subject.Address) *PriorityBacklog {
	l := b.entity(a.Entity)
	if l == nil {
		return nil
	}
	for i := range l.Priorities {
		if l.Priorities[i].Priority == a.Priority {
			return &l.Priorities[i]
		}
	}
	return nil
}

// consumers reads the numbers of all work consumers.
func (b *backlogs) consumers(ctx context.Context) error {
	for offset := 0; ; {
		var page struct {
			Total     int                   `json:"total"`
			Consumers []natsjs.ConsumerInfo `json:"consumers"`
		}
		err := api.Request(ctx, b.q.js, "CONSUMER.LIST."+b.q.name(), map[string]int{"offset": offset}, &page)
		if err != nil {
			return api.Explain(b.q.js.Conn(), err, "list the consumers of %s", b.q.name())
		}
		for _, info := range page.Consumers {
			a, err := b.q.m.Parse(info.Config.FilterSubject)
			if err != nil || a.Kind != subject.Work {
				continue
			}
			if p := b.priority(a); p != nil {
				p.Consumer, p.Paused = true, info.Paused
				p.Pending, p.Unacked, p.Redelivered, p.Waiting = int(info.NumPending), info.NumAckPending, info.NumRedelivered, info.NumWaiting
				b.drawn = append(b.drawn, info)
			}
		}
		offset += len(page.Consumers)
		if len(page.Consumers) == 0 || offset >= page.Total {
			return nil
		}
	}
}

// undelivered counts the tasks of a subject that its consumer does not count: there is no
// consumer, or it is ahead of the stream, as it may be after a full disk.
func (b *backlogs) undelivered(a subject.Address, n int) {
	if p := b.priority(a); p != nil {
		p.Pending = max(p.Pending, n-p.Unacked)
	}
}

// ages finds out when the oldest tasks were stored, with a few requests at a
// time.
func (b *backlogs) ages(ctx context.Context) error {
	const atOnce = 8
	places := make(chan struct{}, atOnce)
	var looks sync.WaitGroup
	look := func(oldest *time.Time, filter string, after uint64) {
		places <- struct{}{}
		looks.Go(func() {
			defer func() { <-places }()
			info := natsjs.ConsumerInfo{Delivered: natsjs.SequenceInfo{Stream: after}}
			*oldest = b.q.firstPending(ctx, b.q.name(), filter, info)
		})
	}
	for _, info := range b.drawn {
		a, _ := b.q.m.Parse(info.Config.FilterSubject)
		p := b.priority(a)
		if p != nil && p.Pending > 0 {
			after := info.Delivered.Stream
			if p.Unacked == 0 { // then all that the stream has of it is pending
				after = 0
			}
			look(&p.Oldest, info.Config.FilterSubject, after)
		}
		if p != nil && p.Unacked > 0 {
			look(&p.OldestDrawn, info.Config.FilterSubject, 0) // the stream keeps a task until it is acknowledged
		}
	}
	for _, l := range b.of {
		for i := range l.Priorities {
			if p := &l.Priorities[i]; !p.Consumer && p.Pending > 0 {
				filter, err := b.q.m.Work(p.Priority, l.Entity)
				if err == nil {
					look(&p.Oldest, filter, 0)
				}
			}
		}
	}
	looks.Wait()
	return ctx.Err()
}
