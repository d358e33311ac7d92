package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
)

// Watch reports changes, see [state.Store]. After a reconnect it reads the bucket again,
// so that fn is also called with what changed meanwhile.
func (s *States) Watch(ctx context.Context, id state.ID, fn func(state.Record)) error {
	if err := id.ValidateWatch(); err != nil {
		return fmt.Errorf("watch runs: %w", err)
	}
	filter, err := s.filter(id.Entity)
	if err != nil {
		return fmt.Errorf("watch runs: %w", err)
	}
	if id.Run != "" {
		filter = s.pattern(stateKey(id))
	}
	if ctx.Err() != nil {
		return nil
	}
	if s.fenced.Load() {
		return s.watchByName(ctx, id, fn)
	}
	w := &statesWatch{s: s, filter: filter, fn: fn, known: map[state.ID]reported{}}
	err = rewatch(ctx, s.js.Conn(), "watch runs", func(status <-chan nats.Status) (bool, error) {
		err := w.once(ctx, status)
		return w.synced, err
	})
	if api.Refused(err) {
		s.fenced.Store(true)
		return s.watchByName(ctx, id, fn)
	}
	return err
}

// nameLook is how often a watch without a consumer polls.
const nameLook = 500 * time.Millisecond

// watchByName is Watch for a user who may not create a consumer: it polls the runs, and
// reports revisions that it has not seen.
func (s *States) watchByName(ctx context.Context, id state.ID, fn func(state.Record)) error {
	known := map[state.ID]reported{}
	look := func() error {
		there := map[state.ID]bool{}
		tell := func(r state.Record) {
			now := reported{r.Revision, r.Time.UnixNano()}
			if there[r.ID] = true; known[r.ID] != now {
				known[r.ID] = now
				fn(r)
			}
		}
		if id.Run != "" {
			r, err := s.Get(ctx, id)
			if err == nil {
				tell(r)
			} else if !errors.Is(err, state.ErrNotFound) {
				return err
			}
		} else {
			for r, err := range s.readByName(ctx, id.Entity, false) {
				if err != nil {
					return err
				}
				tell(r)
			}
		}
		for gone, was := range known {
			if !there[gone] {
				delete(known, gone)
				fn(state.Record{ID: gone, Revision: was.revision + 1, Time: time.Now()})
			}
		}
		return nil
	}
	if err := look(); err != nil {
		return ignoreEnd(ctx, err)
	}
	for pause.For(ctx, nameLook) {
		if err := look(); err != nil && s.js.Conn().IsClosed() {
			return ignoreEnd(ctx, fmt.Errorf("watch runs: %w", nats.ErrConnectionClosed))
		}
	}
	return nil
}

// reported is the message of a report. A bucket that was recreated has another message with the
// same sequence.
type reported struct {
	revision uint64
	stored   int64 // the time, in nanoseconds
}

type statesWatch struct {
	s      *States
	filter string
	fn     func(state.Record)
	known  map[state.ID]reported // what was reported last, of the runs that exist
	lower  map[state.ID]*read    // what was read of runs of which a higher revision is known
	last   uint64                // the newest sequence received
	synced bool                  // all stored runs were read once
}

// once reads the bucket from its beginning and follows it. It returns nil when the
// connection came back, or the consumer was lost, and the bucket has to be read again.
func (w *statesWatch) once(ctx context.Context, status <-chan nats.Status) error {
	r, edge, err := w.s.open(ctx, w.filter, false)
	if err != nil {
		return fmt.Errorf("watch runs: %w", err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	defer func() { <-ended }()
	defer cancel()
	again := false
	go func() {
		defer close(ended)
		select {
		case <-ctx.Done():
		case <-status:
			again = true
			cancel()
		}
	}()
	fresh := map[state.ID]bool{}
	w.lower = map[state.ID]*read{}
	reading := true
	sync := func() error {
		reading, w.synced = false, true
		w.forget(fresh, edge.newest)
		return w.restored(ctx)
	}
	if edge.reached {
		if err := sync(); err != nil && ctx.Err() == nil {
			return err
		}
	}
	for {
		m, err := w.s.next(ctx, r, reading)
		if ctx.Err() != nil {
			cancel()
			if <-ended; again {
				return nil
			}
			return ctx.Err()
		}
		if errors.Is(err, api.ErrRenewed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch runs: %w", err)
		}
		if m != nil {
			w.last = max(w.last, m.Seq)
		}
		if m != nil && m.ofRun() {
			if reading {
				fresh[m.id] = true
			}
			if err := w.report(ctx, m); err != nil && ctx.Err() == nil {
				return err
			}
		}
		if reading {
			if err := edge.pass(ctx, m); err != nil && ctx.Err() == nil {
				return err
			}
			if edge.reached {
				if err := sync(); err != nil && ctx.Err() == nil {
					return err
				}
			}
		}
	}
}

// report passes a message to fn, unless fn was called with it before.
func (w *statesWatch) report(ctx context.Context, m *read) error {
	was, known := w.known[m.id]
	now := reported{m.Seq, m.Time.UnixNano()}
	if m.reply && (!m.Genuine() || endOf(m.Header) == nil) {
		return nil // the run has a document, which says that it has ended
	}
	m.replied = m.reply
	if !m.Genuine() {
		// Get restores the record below the stray, and the restored message is received
		// later.
		if _, err := w.s.Get(ctx, m.id); err != nil && !errors.Is(err, state.ErrNotFound) && !errors.Is(err, ErrUnavailable) {
			return fmt.Errorf("watch runs: %w", err)
		}
		return nil
	}
	if api.Deleted(m.Header) {
		delete(w.lower, m.id)
		if known {
			delete(w.known, m.id)
			w.fn(state.Record{ID: m.id, Revision: m.Seq, Time: m.Time})
		}
		return nil
	}
	if known && m.Seq < was.revision {
		w.lower[m.id] = m
		return nil
	}
	if delete(w.lower, m.id); now == was {
		return nil
	}
	r, err := w.s.record(ctx, m.id, m.stateMessage)
	if damaged(err) {
		return nil // of an object that is gone: a newer message or a marker follows
	}
	if err != nil {
		return fmt.Errorf("watch runs: %w", err)
	}
	w.known[m.id] = now
	w.fn(r)
	return nil
}

// restored reports the runs of which only older revisions than the known one were read: the bucket
// was recreated, or restored from an older copy.
func (w *statesWatch) restored(ctx context.Context) error {
	for id, m := range w.lower {
		w.known[id] = reported{}
		if err := w.report(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// forget reports as deleted the runs that were not found when the bucket was read again.
func (w *statesWatch) forget(fresh map[state.ID]bool, now uint64) {
	for id := range w.known {
		if !fresh[id] {
			delete(w.known, id)
			w.fn(state.Record{ID: id, Revision: max(now, w.last), Time: time.Now()})
		}
	}
}
