package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/telemetry"
	"github.com/aeemesh/aeemesh/state"
)

// records reads and writes the records of a lane's runs, and requeues the messages of runs
// that go on. A write is retried until it is known whether it happened.
type records struct {
	entity string
	log    *slog.Logger
	conn   *nats.Conn
	tel    *telemetry.Lane
	cfg    *Durable
	queue  *jetstream.Lane
	states jetstream.RunStore
	codec  state.Codec
	wrote  func(bytes int) // called for each write

	failing       atomic.Pointer[failure]   // the last failure of the store
	unreadableRun atomic.Pointer[failure]   // the last run that this worker could not read
	loggedAt      atomic.Pointer[time.Time] // when failing was logged
}

// newRecords returns the records of an agent's lane; its lane sets queue and wrote.
func newRecords(cfg *Durable, entity string, codec state.Codec, log *slog.Logger, conn *nats.Conn, tel *telemetry.Lane) *records {
	return &records{entity: entity, log: log, conn: conn, tel: tel, cfg: cfg, states: cfg.States, codec: codec}
}

// failed records that the store does not answer, and logs it at most once a second.
func (s *records) failed(err error) {
	switch {
	case errors.Is(err, jetstream.ErrAccountFull):
		err = fmt.Errorf("%w: runs that have begun end as soon as there is storage; \"aeemesh doctor\" shows what holds it", err)
	case errors.Is(err, jetstream.ErrFull):
		err = fmt.Errorf("%w: runs that have begun end as soon as an operator raises its limit; \"aeemesh doctor\" names the command", err)
	case errors.Is(err, jetstream.ErrDenied):
		err = fmt.Errorf("%w: print the permissions anew (\"aeemesh auth perms\") and load them", err)
	}
	now := time.Now()
	s.failing.Store(&failure{now, err})
	if last := s.loggedAt.Load(); (last == nil || now.Sub(*last) > time.Second) && s.loggedAt.CompareAndSwap(last, &now) {
		s.log.Warn("runs cannot be stored for now", "err", err)
	}
}

type failure struct {
	at  time.Time
	err error
}

// read decodes a record.
func (s *records) read(rec state.Record) (*state.Checkpoint, error) { return s.codec.Read(rec) }

// put encodes and stores a checkpoint. It retries until it knows whether the write
// happened, or ctx ends: the compare-and-swap makes a retry safe. With ErrChanged it
// returns the record that is stored instead, nil if there is none.
func (s *records) put(ctx context.Context, id state.ID, prev uint64, c *state.Checkpoint) (uint64, *state.Record, error) {
	var note jetstream.Note
	if task, err := c.ReadTask(); err == nil {
		note.Corr = task.Corr
	}
	return s.putNoted(ctx, id, prev, c, note)
}

// putNoted is put with what the caller knows for the headers: the corr of the task,
// and a time to live, which applies until another checkpoint replaces this one and only
// where the store supports it.
func (s *records) putNoted(ctx context.Context, id state.ID, prev uint64, c *state.Checkpoint, note jetstream.Note) (uint64, *state.Record, error) {
	started := time.Now()
	buf := documents.Get().(*[]byte)
	defer documents.Put(buf)
	data, digest, err := s.codec.Over(prev).EncodeDigest(*buf, c)
	if err != nil {
		return 0, nil, unencodable{err}
	}
	if cap(data) > cap(*buf) && cap(data) <= maxDocument {
		*buf = data[:0]
	}
	note.Digest = digest
	rev, rec, err := s.swap(ctx, id, func() (uint64, error) { return s.store(ctx, id, prev, data, c, note) },
		func(now state.Record) (uint64, error) { return s.landed(ctx, now, data, c) })
	if err == nil {
		s.tel.Checkpoint(s.entity, len(data), time.Since(started))
	}
	return rev, rec, err
}

// unencodable is the error of a checkpoint that no document can hold.
type unencodable struct{ error }

func (u unencodable) Unwrap() error { return u.error }

// swap makes a write that compares the record's revision. It retries until it knows
// whether the write happened, or ctx ends. landed returns the revision of the write in a
// record that differs from what was expected, 0 if it did not happen. With ErrChanged swap
// returns the record that is stored instead, nil if there is none.
func (s *records) swap(ctx context.Context, id state.ID, write func() (uint64, error), landed func(state.Record) (uint64, error)) (rev uint64, rec *state.Record, err error) {
	err = s.persist(ctx, func() (err error) {
		if rev, err = write(); !errors.Is(err, state.ErrChanged) {
			return err
		}
		now, err := s.states.Get(ctx, id)
		if errors.Is(err, state.ErrNotFound) {
			return state.ErrChanged
		} else if err != nil {
			return err
		}
		// An earlier attempt, or a resend by the client, may have stored it without a
		// confirmation, and others may have written on top of it since.
		if rev, err = landed(now); err == nil && rev == 0 {
			rec, err = &now, state.ErrChanged
		}
		return err
	})
	return rev, rec, err
}

// offlinePause is the longest pause before a write is tried again without a connection.
const offlinePause = 100 * time.Millisecond

// offline returns an error while there is no connection. A write would then leave a copy of
// the record in the buffer of the connection at each attempt.
func (s *records) offline() error {
	if s.conn.IsConnected() || s.conn.IsClosed() {
		return nil
	}
	return nats.ErrConnectionReconnecting
}

// documents pools the buffers of encoded checkpoints: a store keeps no reference to
// its input (see [state.Store]).
var documents = sync.Pool{New: func() any { return new([]byte) }}

// maxDocument is the capacity of the largest buffer that is pooled.
const maxDocument = 256 << 10

// landed returns the revision at which a checkpoint was stored, 0 if it was not. If
// others have written on top of it, a write at the returned revision fails.
func (s *records) landed(ctx context.Context, newest state.Record, data []byte, c *state.Checkpoint) (uint64, error) {
	if bytes.Equal(newest.Data, data) { // each checkpoint has its own state id
		if newest.Replied { // another worker has stored the reply on top of it
			return newest.Revision - 1, nil
		}
		return newest.Revision, nil
	}
	now, err := s.read(newest)
	if err != nil {
		return 0, err
	}
	switch follows, known := now.Follows(c); {
	case follows:
		return newest.Revision - 1, nil
	case known:
		return 0, nil
	}
	history, err := s.states.History(ctx, newest.ID)
	if errors.Is(err, jetstream.ErrDenied) && !jetstream.Away(err) {
		return 0, fmt.Errorf("%w: other clients keep writing to it", ErrLost)
	}
	for _, rec := range history {
		if bytes.Equal(rec.Data, data) {
			return rec.Revision, nil
		}
	}
	return 0, err
}

// store makes one attempt to write. It gives the store the status and the message's sequence
// in addition to the record, so that the store need not decode the record to know them.
func (s *records) store(ctx context.Context, id state.ID, prev uint64, data []byte, c *state.Checkpoint, note jetstream.Note) (uint64, error) {
	s.wrote(len(data))
	note.Status, note.Work = c.Doc.Status, c.Mesh.Work
	if len(data) > jetstream.MaxInline {
		h := s.codec.Header(c)
		note.Header = &h
	}
	return s.states.PutNoted(ctx, id, prev, data, note)
}

// temporary reports whether an error of a store is temporary: a retry may succeed.
func (s *records) temporary(err error) bool {
	if s.conn.IsClosed() {
		return false
	}
	return jetstream.Away(err) || errors.Is(err, context.DeadlineExceeded) || connectionError(err)
}

func connectionError(err error) bool {
	reasons := []error{nats.ErrDisconnected, nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded, nats.ErrTimeout, nats.ErrNoResponders}
	return slices.ContainsFunc(reasons, func(e error) bool { return errors.Is(err, e) })
}

// persist calls f, while there is a connection, until it succeeds, fails with an error that
// a retry would meet again, or ctx ends: then it returns the cause of ctx. f must be safe to
// call twice.
func (s *records) persist(ctx context.Context, f func() error) error {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := s.offline()
		if err == nil {
			err = f()
		} else {
			wait = min(wait, offlinePause)
		}
		switch ended := ctx.Err(); {
		case err == nil:
			return nil
		case ended != nil && (errors.Is(err, ended) || s.temporary(err)):
			return context.Cause(ctx)
		case !s.temporary(err):
			return err
		}
		s.failed(err)
		if !pause.For(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}
