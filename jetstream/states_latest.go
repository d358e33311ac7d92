package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
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
	latestWindows = 3
)

// Latest yields the runs of an entity, or of all for "", the one that was written last first.
// want, if not nil, chooses by the status; a run whose status is not known is always yielded. To
// show the first few of very many runs, it reads the end of the stream backwards. If that does not
// yield enough, it reads the headers of all runs, and then the records of those that are wanted.
// Unless completed runs are wanted, it reads the headers of documents only: a run without a
// document is completed (docs/nats-binding.md, "Runs without a record"). Then the last document of
// a run, not its reply, determines the run's place.
//
// Latest reads records of all entities; for a user who may not, it reads all runs of the entity
// first. A run that is written while Latest reads may be yielded twice; it is not missed if it is
// wanted both before and after.
func (s *States) Latest(ctx context.Context, entity string, want func(aaif.RunStatus) bool) iter.Seq2[state.Record, error] {
	if want == nil {
		want = func(aaif.RunStatus) bool { return true }
	}
	return func(yield func(state.Record, error) bool) {
		l := listing{s, want, yield}
		if s.fenced.Load() {
			l.byName(ctx, entity)
			return
		}
		filter, err := s.filter(entity)
		if err == nil {
			var info natsjs.StreamInfo
			if info, err = api.InfoOf(ctx, s.js, s.stream); err == nil {
				l.latest(ctx, entity, filter, info.State)
				return
			}
		}
		l.fail(err)
	}
}

// A listing yields the runs that are wanted by their status.
type listing struct {
	s     *States
	want  func(aaif.RunStatus) bool
	yield func(state.Record, error) bool
}

// fail ends the listing with an error.
func (l *listing) fail(err error) { l.yield(state.Record{}, fmt.Errorf("list runs: %w", err)) }

// wants reports whether the status in a message's headers is wanted, or not known.
func (l *listing) wants(m stateMessage) bool {
	status := m.status()
	return status == "" || l.want(status)
}

// latest yields the runs of an entity whose messages a filter matches, the last one first.
func (l *listing) latest(ctx context.Context, entity, filter string, now natsjs.StreamState) {
	s, seen := l.s, map[string]bool{}
	for w, err := range s.windows(ctx, filter, now) {
		if err != nil {
			l.fail(err)
			return
		}
		var chosen []string
		for _, m := range slices.Backward(w.found) {
			key, _ := s.keyOf(m.Subject)
			if !seen[key] && l.wants(m) {
				chosen = append(chosen, key)
			}
			seen[key] = true
		}
		if !l.read(ctx, chosen) || w.first {
			return
		}
	}
	if !l.want(aaif.RunCompleted) {
		filter = s.documents(entity)
	}
	rest, err := s.chosen(ctx, filter, l.wants)
	if err != nil {
		l.fail(err)
		return
	}
	l.read(ctx, slices.DeleteFunc(rest, func(key string) bool { return seen[key] }))
}

// A window is a part of the stream: the messages of the runs that a filter matches.
type window struct {
	found []stateMessage
	first bool // nothing is stored before it
}

// windows yields the end of the stream, the last window first.
func (s *States) windows(ctx context.Context, filter string, now natsjs.StreamState) iter.Seq2[window, error] {
	return func(yield func(window, error) bool) {
		first := max(now.FirstSeq, 1) // 0 if nothing was ever stored
		high := now.LastSeq + 1
		for i := range latestWindows {
			low := max(first, high-min(high-1, latestWindow<<i))
			found, err := []stateMessage(nil), error(nil)
			if low < high {
				found, err = s.between(ctx, filter, low, high)
			}
			if !yield(window{found, low == first}, err) || err != nil || low == first {
				return
			}
			high = low
		}
	}
}

// chosen returns the keys of the runs for which choose accepts the last message on a subject that
// the filter matches, or a message that was the last one while chosen reads. The run that was
// written last comes first. The caller reads the runs again.
func (s *States) chosen(ctx context.Context, filter string, choose func(stateMessage) bool) ([]string, error) {
	last := map[string]uint64{} // by key
	add := func(m stateMessage) {
		if choose(m) {
			key, _ := s.keyOf(m.Subject)
			last[key] = max(last[key], m.Seq)
		}
	}
	err := s.eachLast(ctx, filter, func(m *read) { add(m.stateMessage) })
	if errors.Is(err, ErrDenied) {
		err = s.eachLastByName(ctx, filter, add)
	}
	return lastFirst(last), err
}

// eachLastByName passes the last message on each subject that a filter matches to a
// function, for a user who may read the whole stream, but create no consumer. It reads
// the bodies, too.
func (s *States) eachLastByName(ctx context.Context, filter string, each func(stateMessage)) error {
	subjects, err := api.Subjects(ctx, s.js, s.stream, filter)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(slices.Collect(maps.Keys(subjects)), lastBatch) {
		found, err := api.Last(ctx, s.js, s.stream, batch...)
		if err != nil {
			return err
		}
		for _, m := range found {
			each(stateMessage{Message: m})
		}
	}
	return nil
}

// lastBatch is how many subjects eachLastByName reads at once. A server answers for 1,024
// at most.
const lastBatch = 1000

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

// read reads runs by their keys, a few at a time, and yields those that are wanted. It returns
// false if the listing has ended.
func (l *listing) read(ctx context.Context, keys []string) bool {
	for batch := range slices.Chunk(keys, fetchBatch/4) {
		for _, got := range l.s.readAll(ctx, batch, false) {
			switch {
			case errors.Is(got.err, natsjs.ErrMsgNotFound), errors.Is(got.err, state.ErrNotFound):
				continue
			case got.err != nil:
				l.fail(api.Explain(l.s.js.Conn(), got.err, "read a run"))
				return false
			}
			if h, err := got.record.Header(); err == nil && !l.want(h.Status) {
				continue // it has changed since
			}
			if !l.yield(got.record, nil) {
				return false
			}
		}
	}
	return true
}

// byName yields the runs of an entity, the last one first, for a user who may only use direct
// gets of single subjects.
func (l *listing) byName(ctx context.Context, entity string) {
	var all []state.Record
	for r, err := range l.s.readByName(ctx, entity, false) {
		if err != nil {
			l.yield(r, err)
			return
		}
		if h, err := r.Header(); err != nil || l.want(h.Status) {
			all = append(all, r)
		}
	}
	sorted.By(all, func(a, b state.Record) int { return cmp.Compare(b.Revision, a.Revision) })
	for _, r := range all {
		if !l.yield(r, nil) {
			return
		}
	}
}
