package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A Queue is the durable lane of m's mesh: tasks in [StreamWork], one subject
// for each entity and priority, and those that wait for their time in
// [StreamSchedule]. It may be used by many goroutines at once.
type Queue struct {
	js natsjs.JetStream
	m  subject.Map

	fenced atomic.Bool // this user may not read the whole stream

	mu        sync.Mutex
	scheduled uint64    // bytes of StreamSchedule
	looked    time.Time // when they were learnt
}

// NewQueue returns the durable lane of m's mesh. It does no I/O.
func NewQueue(js natsjs.JetStream, m subject.Map) *Queue { return &Queue{js: js, m: m} }

// A Submission is one task for the durable lane.
type Submission struct {
	Entity   string
	Priority string // low, normal, high or urgent; "" is normal

	// ID makes the submission idempotent: another one of the same entity and ID
	// within the stream's duplicate window (2 minutes) is not stored, where it says
	// the same and is still there, and this user may look. It is
	// usually the task's id, which is the run's and so holds for longer. "": every
	// submission is a new one.
	ID string

	Data   []byte      // the envelope
	Header nats.Header // copied; headers that begin with Nats- are left out

	// At is when the task is due, by the server's clock, rounded up to seconds.
	// It needs an ID. Zero or past: now. A user who may not write to [StreamSchedule],
	// which has no fences inside, has it queued at once: the envelope says when it is
	// to begin, and a worker waits for that.
	At time.Time
}

// Submitted says where a submission is.
type Submitted struct {
	Seq       uint64    // its sequence in StreamWork, or in StreamSchedule if it waits
	Due       time.Time // when it is due, if it waits
	Duplicate bool      // it had been submitted before, as far as the server tells
}

// MaxScheduled bounds the bytes of the tasks that wait for their time, of the
// whole mesh. [StreamSchedule] has no limit of its own.
const MaxScheduled = 256 * mib

// Submit stores a task and returns when the server has it. With [ErrUncertain]
// it may be stored: submitting it again with the same ID does no harm.
// [ErrFull]: the stream takes no more; [ErrTooLarge]: it is over the server's
// max_payload.
func (q *Queue) Submit(ctx context.Context, s Submission) (Submitted, error) {
	if s.Priority == "" {
		s.Priority = "normal"
	}
	subj, err := q.m.Work(s.Priority, s.Entity)
	if err != nil {
		return Submitted{}, fmt.Errorf("submit: %w", err)
	}
	due := ceilSecond(s.At)
	if !due.After(time.Now()) {
		due = time.Time{}
	}
	if !due.IsZero() {
		if done, err := q.schedule(ctx, s, due); !errors.Is(err, ErrDenied) {
			return done, err
		}
	}
	msg := &nats.Msg{Subject: subj, Data: s.Data, Header: plainHeader(s.Header)}
	if s.ID != "" {
		msg.Header.Set(natsjs.MsgIDHeader, workID(s.Entity, s.ID))
	}
	ack, err := q.publish(ctx, msg)
	if err != nil {
		return Submitted{}, uncertain(explain(q.js.Conn(), err, "submit a task to %s", subj))
	}
	return Submitted{Seq: ack.Sequence, Due: due, Duplicate: ack.Duplicate}, nil
}

// publish stores a message in StreamWork. Of a user who may not read the stream, a task
// that is submitted again is stored again: its run is one.
func (q *Queue) publish(ctx context.Context, msg *nats.Msg) (*natsjs.PubAck, error) {
	msg.Header.Set(natsjs.ExpectedStreamHeader, q.name())
	return publishOnce(ctx, q.js, msg, "", func(seq uint64) bool {
		if q.fenced.Load() {
			return false
		}
		have, err := leaderGet(ctx, q.js, q.name(), map[string]any{"seq": seq})
		q.fence(err)
		return err == nil && same(have, msg)
	})
}

// Has reports whether the message with a sequence is still in [StreamWork]. The
// stream's leader answers. It fails with [ErrDenied] for a user who may not read the
// whole stream; see [Lane.Gone].
func (q *Queue) Has(ctx context.Context, seq uint64) (bool, error) {
	if seq == 0 {
		return false, nil
	}
	if q.fenced.Load() {
		return false, fmt.Errorf("look for message %d of %s: %w", seq, q.name(), ErrDenied)
	}
	err := request(ctx, q.js, "STREAM.MSG.GET."+q.name(), map[string]uint64{"seq": seq}, nil)
	if errors.Is(err, natsjs.ErrMsgNotFound) {
		return false, nil
	}
	q.fence(err)
	if err != nil {
		return false, explain(q.js.Conn(), err, "look for message %d of %s", seq, q.name())
	}
	return true, nil
}

// Fence says that the user's permissions end at its own entities: see [States.Fence].
// [Queue.Has] then fails with [ErrDenied], and [Queue.Peek] yields one task.
func (q *Queue) Fence() { q.fenced.Store(true) }

// fence remembers that this user may not read the whole stream, so that it is not
// asked for again: a server logs each such request.
func (q *Queue) fence(err error) {
	if errors.Is(err, ErrDenied) {
		q.fenced.Store(true)
	}
}

func (q *Queue) name() string { return StreamWork + q.m.Suffix() }

// workID is the Nats-Msg-Id of a task. Ids are unique within an entity, a
// stream's within the stream.
func workID(entity, id string) string { return entity + "/" + id }

func ceilSecond(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	if s := t.Truncate(time.Second); !s.Equal(t) {
		return s.Add(time.Second)
	}
	return t
}
