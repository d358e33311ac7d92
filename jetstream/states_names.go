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

// readRun reads a run for a listing. For a damaged record it returns the readable part.
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
//
// Another run may have as many revisions: between two listings a run may be deleted and its task
// be submitted again, the store be restored from an older copy, or old revisions expire while new
// ones come. So each ended run is read again after endedTurns listings at the latest.
type endedRuns struct {
	mu   sync.Mutex
	seed maphash.Seed
	of   map[string]*endedOf
}

// endedOf is what is known of an entity's runs.
type endedOf struct {
	turn, next uint8 // of the listings, and of the next run that is added; below endedTurns
	runs       map[uint64]endedRun
}

type endedRun struct{ revisions, turn uint8 }

// endedTurns is the number of listings in which all ended runs are read again: each listing reads
// an equal part.
const endedTurns = 64

func (e *endedRuns) add(key string, revisions int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if revisions >= state.HistoryLimit {
		return
	}
	if e.of == nil {
		e.seed, e.of = maphash.MakeSeed(), map[string]*endedOf{}
	}
	entity := entityOf(key)
	o := e.of[entity]
	if o == nil {
		o = &endedOf{runs: map[uint64]endedRun{}}
		e.of[entity] = o
	}
	hash := maphash.String(e.seed, key)
	run, again := o.runs[hash]
	if !again {
		run.turn = o.next
		o.next = (o.next + 1) % endedTurns
	}
	run.revisions = uint8(revisions)
	o.runs[hash] = run
}

// leave removes the runs that are known to have ended from the names of an entity's runs, or of
// all for "". It forgets the runs that are gone or have changed: a task whose run was deleted may
// be submitted again, and the new run have as many revisions as the old one.
func (e *endedRuns) leave(entity string, names map[string]int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := map[string]map[uint64]endedRun{}
	for of, o := range e.of {
		if entity == "" || of == entityKey(entity) {
			o.turn = (o.turn + 1) % endedTurns
			known[of] = map[uint64]endedRun{}
		}
	}
	for key, revisions := range names {
		of := entityOf(key)
		if known[of] == nil {
			continue
		}
		hash := maphash.String(e.seed, key)
		run, ok := e.of[of].runs[hash]
		switch {
		case !ok || int(run.revisions) != revisions:
		case run.turn == e.of[of].turn:
			known[of][hash] = endedRun{0, run.turn} // for add
		default:
			known[of][hash] = run
			delete(names, key)
		}
	}
	for of, runs := range known {
		if e.of[of].runs = runs; len(runs) == 0 {
			delete(e.of, of)
		}
	}
}
