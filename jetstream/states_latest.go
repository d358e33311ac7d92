package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/state"
)

// Latest looks this many messages back at first, then twice as many, latestWindows times.
const (
	latestWindow  = 512
	latestWindows = 8
)

// Latest yields the runs of an entity, or of all for "", the one that was written last
// first. want, if not nil, chooses by the status; a run whose status is not known is always
// yielded. To show the first few of very many runs, it reads the end of the stream
// backwards, and lists all runs only if that does not yield enough. It reads records of all
// entities; for a user who may not, it reads all runs of the entity first.
//
// A run that is written while Latest reads may be yielded twice.
func (s *States) Latest(ctx context.Context, entity string, want func(aaif.RunStatus) bool) iter.Seq2[state.Record, error] {
	if want == nil {
		want = func(aaif.RunStatus) bool { return true }
	}
	return func(yield func(state.Record, error) bool) {
		if s.fenced.Load() {
			s.latestByName(ctx, entity, want)(yield)
			return
		}
		filter, err := s.filter(entity)
		if err == nil {
			var info natsjs.StreamInfo
			if err = api.Request(ctx, s.js, "STREAM.INFO."+s.stream, nil, &info); err == nil {
				s.latest(ctx, entity, filter, info.State, want, yield)
				return
			}
			err = api.Explain(s.js.Conn(), err, "look at %s", s.stream)
		}
		yield(state.Record{}, fmt.Errorf("list runs: %w", err))
	}
}

func (s *States) latest(ctx context.Context, entity, filter string, now natsjs.StreamState, want func(aaif.RunStatus) bool, yield func(state.Record, error) bool) {
	seen := map[string]bool{}
	window := uint64(latestWindow)
	first := max(now.FirstSeq, 1) // 0 if nothing was ever stored
	for high := now.LastSeq + 1; high > first; {
		low := max(first, high-min(high-1, window))
		var chosen []string
		if len(seen) == 0 || window <= latestWindow<<latestWindows {
			found, err := s.between(ctx, filter, low, high)
			if err != nil {
				yield(state.Record{}, fmt.Errorf("list runs: %w", err))
				return
			}
			for _, m := range slices.Backward(found) {
				key, _ := s.keyOf(m.Subject)
				if status := m.status(); !seen[key] && (status == "" || want(status)) {
					chosen = append(chosen, key)
				}
				seen[key] = true
			}
			high, window = low, 2*window
		} else {
			rest, err := s.newest(ctx, entity)
			if err != nil {
				yield(state.Record{}, fmt.Errorf("list runs: %w", err))
				return
			}
			sorted.By(rest, func(a, b stateMessage) int { return cmp.Compare(b.last, a.last) })
			for _, m := range rest {
				if status := m.status(); !seen[stateKey(m.id)] && (status == "" || want(status)) {
					chosen = append(chosen, stateKey(m.id))
				}
			}
			high = 0
		}
		if !s.yieldKeys(ctx, chosen, want, yield) {
			return
		}
	}
}

// between returns the messages of the runs that a filter matches, from a sequence to
// another one, exclusive.
func (s *States) between(ctx context.Context, filter string, low, high uint64) ([]stateMessage, error) {
	var found []stateMessage
	for m, err := range api.Scan(ctx, s.js, s.stream, filter, low) {
		if err != nil || m.Seq >= high {
			return found, err
		}
		found = append(found, stateMessage{Message: m})
	}
	return found, nil
}

// yieldKeys reads runs by their keys, a few at a time, and yields those that are wanted.
func (s *States) yieldKeys(ctx context.Context, keys []string, want func(aaif.RunStatus) bool, yield func(state.Record, error) bool) bool {
	for batch := range slices.Chunk(keys, fetchBatch/4) {
		for _, got := range s.readAll(ctx, batch, false) {
			switch {
			case errors.Is(got.err, natsjs.ErrMsgNotFound), errors.Is(got.err, state.ErrNotFound):
				continue
			case got.err != nil:
				yield(state.Record{}, fmt.Errorf("list runs: %w", api.Explain(s.js.Conn(), got.err, "read a run")))
				return false
			}
			if h, err := got.record.Header(); err == nil && !want(h.Status) {
				continue // it has changed since
			}
			if !yield(got.record, nil) {
				return false
			}
		}
	}
	return true
}

// latestByName is Latest for a user who may only use direct gets of single subjects.
func (s *States) latestByName(ctx context.Context, entity string, want func(aaif.RunStatus) bool) iter.Seq2[state.Record, error] {
	return func(yield func(state.Record, error) bool) {
		var all []state.Record
		for r, err := range s.readByName(ctx, entity, false) {
			if err != nil {
				yield(r, err)
				return
			}
			if h, err := r.Header(); err != nil || want(h.Status) {
				all = append(all, r)
			}
		}
		sorted.By(all, func(a, b state.Record) int { return cmp.Compare(b.Revision, a.Revision) })
		for _, r := range all {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Names yields the ids of the runs of an entity, or of all for "", by the names of their
// subjects, without reading a record.
func (s *States) Names(ctx context.Context, entity string) ([]state.ID, error) {
	filter, err := s.filter(entity)
	if err != nil {
		return nil, err
	}
	subjects, err := api.Subjects(ctx, s.js, s.stream, filter)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	var ids []state.ID
	for key := range s.byKey(subjects) {
		if id, err := stateID(key); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
