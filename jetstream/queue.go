package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A Queue is the durable lane of m's mesh: tasks in [StreamWork], one subject for each
// entity and priority, and delayed tasks in [StreamSchedule]. It may be used by many
// goroutines at once.
type Queue struct {
	js natsjs.JetStream
	m  subject.Map

	fenced atomic.Bool // this user may not read the whole stream

	mu        sync.Mutex
	scheduled uint64    // size of StreamSchedule in bytes
	looked    time.Time // when it was read
}

// NewQueue returns the durable lane of m's mesh. It does no I/O.
func NewQueue(js natsjs.JetStream, m subject.Map) *Queue { return &Queue{js: js, m: m} }

// A Submission is one task for the durable lane.
type Submission struct {
	Entity   string
	Priority string // low, normal, high or urgent; "" is normal

	// ID makes the submission idempotent: within the stream's duplicate window (2
	// minutes) another submission of the same entity and ID is not stored, if the first
	// one is equal, is still in the stream, and this user may read the stream. It is
	// usually the task's id, which is also the run's id and so prevents a second run for
	// longer. "": every submission is new.
	ID string

	Data   []byte      // the envelope
	Header nats.Header // copied, except headers that begin with Nats-

	// At is when the task falls due, by the server's clock, rounded up to seconds. It
	// needs an ID. Zero: now. Past: within half a second, once the server has looked. For a
	// user who may not write to [StreamSchedule], because its subjects cannot be fenced, the
	// task is queued at once: the envelope says when it is to begin, and a worker waits until then.
	At time.Time
}

// Submitted says where a submission is stored.
type Submitted struct {
	Seq       uint64    // its sequence in StreamWork, or in StreamSchedule if it is delayed
	Due       time.Time // when it falls due, if it is delayed
	Duplicate bool      // it had been submitted before, according to the server
}

// MaxScheduled is the most bytes that all delayed tasks of the mesh may take.
// [StreamSchedule] has no limit of its own.
const MaxScheduled = 256 * mib

// MaxDue is the latest time at which a task may fall due: the server counts nanoseconds in 64
// bits, so a later time overflows into the past.
var MaxDue = time.Unix(0, math.MaxInt64).UTC().Truncate(time.Second)

// Submit stores a task and returns when the server has acknowledged it. After
// [ErrUncertain] it may be stored: submitting it again with the same ID does no harm.
// [ErrFull]: the stream is full; [ErrTooLarge]: the task exceeds the server's
// max_payload.
func (q *Queue) Submit(ctx context.Context, s Submission) (Submitted, error) {
	s.Priority = cmp.Or(s.Priority, "normal")
	subj, err := q.m.Work(s.Priority, s.Entity)
	if err != nil {
		return Submitted{}, fmt.Errorf("submit: %w", err)
	}
	due := ceilSecond(s.At)
	if due.After(MaxDue) {
		return Submitted{}, fmt.Errorf("submit a task for %s: the server keeps times until %s", due.UTC().Format(time.RFC3339), MaxDue.Format(time.RFC3339))
	}
	if !due.IsZero() {
		if done, err := q.schedule(ctx, s, due); !errors.Is(err, ErrDenied) {
			return done, err
		}
	}
	ack, err := q.publish(ctx, q.message(subj, s))
	if err != nil {
		return Submitted{}, api.Uncertain(api.Explain(q.js.Conn(), err, "submit a task to %s", subj))
	}
	return Submitted{Seq: ack.Sequence, Due: due, Duplicate: ack.Duplicate}, nil
}

// Size returns the size of the message of a task that is due, its headers and its body, and the
// server's max_payload, which limits both together.
func (q *Queue) Size(s Submission) (size, most int64) {
	return int64(q.message("", s).Size()), q.js.Conn().MaxPayload()
}

// message returns the message of a task that is due.
func (q *Queue) message(subj string, s Submission) *nats.Msg {
	msg := &nats.Msg{Subject: subj, Data: s.Data, Header: api.PlainHeader(s.Header)}
	if s.ID != "" {
		msg.Header[natsjs.MsgIDHeader] = []string{workID(s.Entity, s.ID)}
	}
	msg.Header[natsjs.ExpectedStreamHeader] = []string{q.name()}
	return msg
}

// publish stores a message of [Queue.message]. For a user who may not read the stream, a task
// that is submitted twice within the duplicate window is stored twice; it is still one
// run.
func (q *Queue) publish(ctx context.Context, msg *nats.Msg) (*natsjs.PubAck, error) {
	return api.PublishOnce(ctx, q.js, msg, "", func(seq uint64) (bool, error) {
		if q.fenced.Load() {
			return false, nil
		}
		have, err := api.LeaderGet(ctx, q.js, q.name(), map[string]any{"seq": seq})
		q.fence(err)
		return err == nil && api.Same(have, msg), err
	})
}

// Missing reports whether the server says that there is no [StreamWork], or no JetStream. It
// returns false if the stream has no leader, or if the user lacks the permission to ask.
func (q *Queue) Missing(ctx context.Context) bool { return q.lacks(ctx, q.name()) }

// ScheduleMissing is Missing for [StreamSchedule].
func (q *Queue) ScheduleMissing(ctx context.Context) bool { return q.lacks(ctx, q.waiting()) }

func (q *Queue) lacks(ctx context.Context, stream string) bool {
	err := api.Request(ctx, q.js, "STREAM.INFO."+stream, nil, nil)
	return errors.Is(err, natsjs.ErrStreamNotFound) || Off(err)
}

// Has reports whether [StreamWork] still holds a task of an entity under a sequence, and whether
// is, unless nil, accepts the message: a stream that was recreated, or restored from an older
// copy, may have another message under a recorded sequence. The stream's leader answers. Has fails
// with [ErrDenied] for a user who may not read the whole stream; see [Lane.Gone].
func (q *Queue) Has(ctx context.Context, entity string, seq uint64, is func(Message) bool) (bool, error) {
	if seq == 0 {
		return false, nil
	}
	if q.fenced.Load() {
		return false, fmt.Errorf("look for message %d of %s: %w", seq, q.name(), ErrDenied)
	}
	msg, err := api.LeaderGet(ctx, q.js, q.name(), map[string]any{"seq": seq})
	if errors.Is(err, natsjs.ErrMsgNotFound) {
		return false, nil
	}
	q.fence(err)
	if err != nil {
		return false, api.Explain(q.js.Conn(), err, "look for message %d of %s", seq, q.name())
	}
	at, err := q.m.Parse(msg.Subject)
	return err == nil && at.Entity == entity && (is == nil || is(msg)), nil
}

// Fence says that the user's permissions end at its own entities: see [States.Fence].
// [Queue.Has] then fails with [ErrDenied], and [Queue.Peek] yields only one task.
func (q *Queue) Fence() { q.fenced.Store(true) }

// fence records after [api.Refused] that this user may not read the whole stream, so that
// it does not try again: a server logs each such request.
func (q *Queue) fence(err error) {
	if api.Refused(err) {
		q.fenced.Store(true)
	}
}

func (q *Queue) name() string { return StreamWork + q.m.Suffix() }

// workID is the Nats-Msg-Id of a task. A task's id is unique within its entity only, a
// Nats-Msg-Id has to be unique within the stream.
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
