package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"

	"github.com/aeemesh/aeemesh/state"
)

// Names returns the ids of the runs of an entity, or of all for "", without reading a
// document. Runs that were deleted in the last hour are among them.
func (s *States) Names(ctx context.Context, entity string) ([]state.ID, error) {
	filter, err := s.filter(entity)
	if err != nil {
		return nil, err
	}
	keys, err := s.keys(ctx, entity, filter)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return idsOf(keys), nil
}

// Recent returns the runs of an entity, or of all for "", that a function matches, if they
// are among those that were written last: it looks at the last few thousand messages, the
// last ones first, until some runs match. It needs the permissions of [States.Latest].
func (s *States) Recent(ctx context.Context, entity string, match func(state.ID) bool) ([]state.ID, error) {
	filter, err := s.filter(entity)
	if err != nil {
		return nil, err
	}
	info, err := api.InfoOf(ctx, s.js, s.stream)
	if err != nil {
		return nil, err
	}
	for w, err := range s.windows(ctx, filter, info.State) {
		if err != nil {
			return nil, fmt.Errorf("list runs: %w", err)
		}
		found := map[string]int{}
		for _, m := range w.found {
			key, _ := s.keyOf(m.Subject)
			if id, err := stateID(key); err == nil && match(id) {
				found[key]++
			}
		}
		if len(found) > 0 {
			return idsOf(found), nil
		}
	}
	return nil, nil
}

// Since returns the runs that were written at a time or later, if these are few: else it
// is cheaper to list all [States.Names]. Runs that were deleted since are among them.
func (s *States) Since(ctx context.Context, since time.Time) (ids []state.ID, few bool, err error) {
	if few, err = s.fewSince(ctx, since); err != nil || !few {
		return nil, false, err
	}
	keys := map[string]int{}
	for m, err := range api.ScanSince(ctx, s.js, s.stream, s.pattern(">"), 1, since) {
		if err != nil {
			return nil, false, err
		}
		key, _ := s.keyOf(m.Subject)
		keys[key]++
	}
	return idsOf(keys), true, nil
}

// keys returns the keys of the runs of an entity, or of all for "", which a filter matches.
func (s *States) keys(ctx context.Context, entity, filter string) (map[string]int, error) {
	if !s.fenced.Load() {
		info, err := api.InfoOf(ctx, s.js, s.stream)
		if err != nil {
			return nil, err
		}
		if info.State.NumSubjects > manySubjects {
			keys, err := s.keysByHeaders(ctx, filter)
			if !errors.Is(err, ErrDenied) {
				return keys, err
			}
		}
	}
	// For each 100,000 subjects that it lists, a server sorts all that the filter matches.
	// Documents and replies are listed separately, so that it sorts fewer.
	keys := map[string]int{}
	for _, filter := range s.subjects(entity) {
		subjects, err := api.Subjects(ctx, s.js, s.stream, filter)
		if err != nil {
			return nil, err
		}
		for key, n := range s.byKey(subjects) {
			keys[key] += n
		}
	}
	return keys, nil
}

// manySubjects is how many subjects a stream has if it is cheaper to read the headers of
// the last messages than the list of the subjects: a server goes through all of them for
// each 100,000 that it lists.
const manySubjects = 300_000

func (s *States) keysByHeaders(ctx context.Context, filter string) (map[string]int, error) {
	keys := map[string]int{}
	err := s.eachLast(ctx, filter, func(m *read) { keys[m.key]++ })
	return keys, err
}

func idsOf(keys map[string]int) []state.ID {
	var ids []state.ID
	for key := range keys {
		if id, err := stateID(key); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}
