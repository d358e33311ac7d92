package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// put encodes and stores a checkpoint, and does not give up before it knows
// whether that happened, or ctx ends: the swap makes another try safe. With
// ErrChanged comes the record that is there instead; nil if there is none.
func (l *lane) put(ctx context.Context, id state.ID, prev uint64, c *state.Checkpoint) (uint64, *state.Record, error) {
	return l.putFor(ctx, id, prev, c, 0)
}

// putFor is put of a checkpoint that is kept for life, if no other is stored over it
// and the store can; 0: for as long as any.
func (l *lane) putFor(ctx context.Context, id state.ID, prev uint64, c *state.Checkpoint, life time.Duration) (uint64, *state.Record, error) {
	started := time.Now()
	buf := documents.Get().(*[]byte)
	defer documents.Put(buf)
	data, err := l.codec.Over(prev).EncodeIn(*buf, c)
	if err != nil {
		return 0, nil, err
	}
	if cap(data) > cap(*buf) && cap(data) <= maxDocument {
		*buf = data[:0]
	}
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		rev, err := l.store(ctx, id, prev, data, c, life)
		if err == nil {
			l.tel.checkpoint(l.host, len(data), time.Since(started))
			return rev, nil, nil
		}
		if errors.Is(err, state.ErrChanged) {
			rec, err := l.cfg.States.Get(ctx, id)
			switch {
			case err == nil:
				// It may have been stored, by a try that nobody told us of, which
				// the client makes too; and somebody may have written since, on top
				// of it.
				if rev, err := l.landed(ctx, rec, data, c); err == nil && rev > 0 {
					return rev, nil, nil
				} else if err == nil {
					return 0, &rec, state.ErrChanged
				} else if !l.passing(err) {
					return 0, nil, err
				}
			case errors.Is(err, state.ErrNotFound):
				return 0, nil, state.ErrChanged
			case !l.passing(err):
				return 0, nil, err
			}
		} else if !l.passing(err) {
			return 0, nil, err
		}
		l.storeFailed(err)
		if err := sleep(ctx, wait); err != nil {
			return 0, nil, err
		}
	}
}

// documents are the memory of encoded checkpoints: a store keeps nothing of what
// it was given (see [state.Store]).
var documents = sync.Pool{New: func() any { return new([]byte) }}

// maxDocument is the largest memory that is kept for the next one.
const maxDocument = 256 << 10

// landed is the revision at which a checkpoint was stored, 0 if it was not. Where
// others have written over it, it is one at which nothing can be written any more.
func (l *lane) landed(ctx context.Context, newest state.Record, data []byte, c *state.Checkpoint) (uint64, error) {
	if bytes.Equal(newest.Data, data) { // each has an id of its own
		return newest.Revision, nil
	}
	now, err := l.codec.Decode(newest.Data)
	if err != nil {
		return 0, err
	}
	switch follows, known := now.Follows(c); {
	case follows:
		return newest.Revision - 1, nil
	case known:
		return 0, nil
	}
	history, err := l.cfg.States.History(ctx, newest.ID)
	if errors.Is(err, jetstream.ErrDenied) {
		return 0, fmt.Errorf("%w: other clients keep writing to it", ErrLost)
	}
	for _, rec := range history {
		if bytes.Equal(rec.Data, data) {
			return rec.Revision, nil
		}
	}
	return 0, err
}

// store is one try. What the store notes beside a record spares it reading it.
func (l *lane) store(ctx context.Context, id state.ID, prev uint64, data []byte, c *state.Checkpoint, life time.Duration) (uint64, error) {
	l.share.wrote(len(data))
	if l.noted != nil {
		return l.noted.PutNoted(ctx, id, prev, data, jetstream.Note{Status: c.Doc.Status, Work: c.Mesh.Work, TTL: life})
	}
	return l.cfg.States.Put(ctx, id, prev, data)
}

// noter is a store that takes what it would have to read from a record.
type noter interface {
	PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note jetstream.Note) (uint64, error)
}

// passing reports errors of a store that another try may not meet.
func (l *lane) passing(err error) bool {
	if l.host.node.conn.IsClosed() {
		return false
	}
	return away(err) || errors.Is(err, context.DeadlineExceeded) || connectionError(err)
}

// away reports errors of JetStream that may be gone the next time: it does not
// answer, has no leader, is full, or nobody knows whether it has stored something.
func away(err error) bool {
	for _, e := range []error{jetstream.ErrUncertain, jetstream.ErrUnavailable, jetstream.ErrFull, natsjs.ErrNoStreamResponse} {
		if errors.Is(err, e) {
			return true
		}
	}
	var api *natsjs.APIError // no leader for now, for instance
	return errors.As(err, &api) && api.Code == http.StatusServiceUnavailable
}

// persist is lane.persist for a durable task; for a live one, whose sender waits and
// may ask again, it calls f once.
func (t *Task) persist(ctx context.Context, f func() error) error {
	if t.run == nil {
		return f()
	}
	return t.run.lane.persist(ctx, f)
}

// persist calls f again as long as it fails with what another try may not meet,
// until ctx ends: then it fails with the cause of that, which f need not know. f must
// do no harm when it is called twice.
func (l *lane) persist(ctx context.Context, f func() error) error {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := f()
		switch ended := ctx.Err(); {
		case err == nil:
			return nil
		case ended != nil && (errors.Is(err, ended) || l.passing(err)):
			return context.Cause(ctx)
		case !l.passing(err):
			return err
		}
		l.storeFailed(err)
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// sleep waits, and fails with the cause of ctx when that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
