package jetstream

import (
	"context"
	"errors"
	"slices"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/state"
)

// Locate returns the runs that have an id, or whose task has it. It reads nothing of other runs:
// the id of a task's run follows from its entity, and the entities are those in [BucketLanes]. It
// misses the runs of an entity that is not in the bucket, where only its consumer shows that it
// has a durable lane; [States.Names] has these runs, too.
func (s *States) Locate(ctx context.Context, id string) ([]state.ID, error) {
	found, err := lastByEntity(ctx, s.js, s.m, s.stream, func(entity string) (subjects []string) {
		for _, run := range []string{id, state.RunID(entity, id)} {
			key := stateKey(state.ID{Entity: entity, Run: run})
			subjects = append(subjects, s.sub+key, s.replySub+key)
		}
		return subjects
	})
	var ids []state.ID
	for _, m := range found {
		key, _ := s.keyOf(m.Subject)
		if id, err := stateID(key); err == nil && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// lastByEntity returns the last message on each of some subjects of every entity that is in
// [BucketLanes]: none for a user who may not read them.
func lastByEntity(ctx context.Context, js natsjs.JetStream, m subject.Map, stream string, of func(entity string) []string) ([]Message, error) {
	entities, err := NewQueue(js, m).registered(ctx)
	if err != nil {
		return nil, err
	}
	var subjects []string
	for _, entity := range entities {
		subjects = append(subjects, of(entity)...)
	}
	var found []Message
	for batch := range slices.Chunk(subjects, fetchBatch) {
		messages, err := api.Last(ctx, js, stream, batch...)
		if errors.Is(err, ErrDenied) || errors.Is(err, ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		found = append(found, messages...)
	}
	return found, nil
}
