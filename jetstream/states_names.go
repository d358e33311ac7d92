package jetstream

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/jetstream/internal/chunks"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/state"
)

// readByName yields the runs of an entity, or of all for "", for a user who may only use
// direct gets: it lists the keys and reads them one by one. With open it yields only runs
// that have not ended; it remembers the ended ones, to read them only once.
func (s *States) readByName(ctx context.Context, entity string, open bool) iter.Seq2[state.Record, error] {
	return func(yield func(state.Record, error) bool) {
		fail := func(err error) { yield(state.Record{}, fmt.Errorf("list runs: %w", err)) }
		filter, err := s.filter(entity)
		if err != nil {
			fail(err)
			return
		}
		names, err := api.Subjects(ctx, s.js, s.stream, filter)
		if err != nil {
			fail(err)
			return
		}
		names = s.byKey(names)
		if open {
			s.ended.leave(entity, names)
		}
		for batch := range slices.Chunk(slices.Sorted(maps.Keys(names)), fetchBatch/4) {
			for i, got := range s.readAll(ctx, batch, open) {
				switch {
				case errors.Is(got.err, errEnded):
					s.ended.add(batch[i], names[batch[i]])
					continue
				case errors.Is(got.err, natsjs.ErrMsgNotFound), errors.Is(got.err, state.ErrNotFound):
					continue
				case got.err != nil:
					fail(api.Explain(s.js.Conn(), got.err, "read a run"))
					return
				}
				if !yield(got.record, nil) {
					return
				}
			}
		}
	}
}

type runRead struct {
	record state.Record
	err    error
}

// errEnded: the run has ended.
var errEnded = errors.New("the run has ended")

// readAll reads the runs with the given keys concurrently, but one of each entity before
// its others: if this user may not ask the leader, the server refuses it once for each
// entity, and not for each run.
func (s *States) readAll(ctx context.Context, keys []string, open bool) []runRead {
	reads := make([]runRead, len(keys))
	first := map[string]int{}
	for i, key := range keys {
		if _, there := first[entityOf(key)]; !there {
			first[entityOf(key)] = i
		}
	}
	for _, now := range []bool{true, false} {
		var done sync.WaitGroup
		for i, key := range keys {
			if (first[entityOf(key)] == i) == now {
				done.Go(func() { reads[i].record, reads[i].err = s.readRun(ctx, key, open) })
			}
		}
		done.Wait()
	}
	return reads
}

// readRun reads a run for a listing. Of a damaged record it returns what is there.
func (s *States) readRun(ctx context.Context, key string, open bool) (state.Record, error) {
	id, err := stateID(key)
	if err != nil {
		return state.Record{}, natsjs.ErrMsgNotFound // not the key of a run
	}
	m, err := s.current(ctx, key)
	if err == nil && !m.Genuine() {
		covered := state.Record{ID: id, Revision: m.last, Time: m.Time}
		m, err = s.restore(ctx, id, m.last)
		if errors.Is(err, errStray) && (s.fenced.Load() || errors.Is(err, ErrDenied)) {
			return covered, nil // this user may not restore it
		}
	}
	switch {
	case err != nil:
		return state.Record{}, err
	case api.Deleted(m.Header):
		return state.Record{}, natsjs.ErrMsgNotFound
	case open && state.Terminal(m.status()):
		return state.Record{}, errEnded
	}
	r, err := s.record(ctx, id, m)
	if errors.Is(err, chunks.ErrGone) {
		if now, e := s.current(ctx, key); e != nil || now.last != m.last { // the run has changed since
			if now, e := s.Get(ctx, id); !damaged(e) {
				return now, e
			}
		}
	}
	if damaged(err) {
		err = nil
	}
	return r, err
}

// endedRuns remembers which runs have ended, by entity, by a hash of their key, with their
// number of revisions: a retry as a dead letter adds revisions. The bucket keeps at most
// [state.HistoryLimit] revisions, so a run with that many is not remembered.
type endedRuns struct {
	mu   sync.Mutex
	seed maphash.Seed
	of   map[string]map[uint64]int
}

func (e *endedRuns) add(key string, revisions int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if revisions >= state.HistoryLimit {
		return
	}
	if e.of == nil {
		e.seed, e.of = maphash.MakeSeed(), map[string]map[uint64]int{}
	}
	e.put(e.of, key, revisions)
}

func (e *endedRuns) put(to map[string]map[uint64]int, key string, revisions int) {
	entity := entityOf(key)
	if to[entity] == nil {
		to[entity] = map[uint64]int{}
	}
	to[entity][maphash.String(e.seed, key)] = revisions
}

// leave removes the runs that are known to have ended from the names of an entity's runs, or of
// all for "". It forgets the runs that are gone or have changed: a task whose run was deleted may
// be submitted again, and the new run have as many revisions as the old one.
func (e *endedRuns) leave(entity string, names map[string]int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of == nil {
		return
	}
	known := map[string]map[uint64]int{}
	for key, revisions := range names {
		if e.of[entityOf(key)][maphash.String(e.seed, key)] == revisions {
			e.put(known, key, revisions)
			delete(names, key)
		}
	}
	if entity == "" {
		e.of = known
		return
	}
	delete(e.of, entityKey(entity))
	maps.Copy(e.of, known)
}
