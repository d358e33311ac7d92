package jetstream

import (
	"context"
	"errors"
	"strings"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Served reports whether an entity has a durable lane: whether a worker has registered it
// in [BucketLanes], or the consumer of its tasks of normal priority exists. It says
// nothing about workers, which may all be offline.
func (q *Queue) Served(ctx context.Context, entity string) (bool, error) {
	c, err := WorkConsumer(q.m, "normal", entity, 0)
	if err != nil {
		return false, err
	}
	err = api.Request(ctx, q.js, "CONSUMER.INFO."+q.name()+"."+c.Config.Durable, nil, nil)
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, natsjs.ErrConsumerNotFound) && !errors.Is(err, natsjs.ErrStreamNotFound) {
		return false, api.Explain(q.js.Conn(), err, "look for the consumer of %s", entity)
	}
	lanes := q.lanes()
	_, err = lanes.get(ctx, subject.Escape(entity))
	if err != nil && !errors.Is(err, natsjs.ErrMsgNotFound) && !errors.Is(err, natsjs.ErrStreamNotFound) {
		return false, lanes.explain(err, "look for %s in %s", entity, lanes.name)
	}
	return err == nil, nil
}

// register records that an entity has a durable lane, unless that is recorded.
func (q *Queue) register(ctx context.Context, entity string) error {
	lanes := q.lanes()
	key := subject.Escape(entity)
	ctx, cancel := api.OneRequest(ctx)
	defer cancel()
	ctx, stop := api.UntilDenied(ctx, q.js.Conn(), api.KeyPrefix(q.js)+lanes.subject(key)+`"`)
	defer stop()
	_, err := lanes.create(ctx, key, []byte(entity))
	switch cause := context.Cause(ctx); {
	case api.IsWrongSequence(err):
		return nil
	case err != nil && errors.Is(cause, ErrDenied):
		err = cause
	}
	return lanes.explain(err, "register %s in %s", entity, lanes.name)
}

// unregister removes the record, and reports whether there was one.
func (q *Queue) unregister(ctx context.Context, entity string) (bool, error) {
	lanes := q.lanes()
	purged, err := api.Purge{Filter: lanes.subject(subject.Escape(entity))}.Do(ctx, q.js, lanes.stream())
	if errors.Is(err, natsjs.ErrStreamNotFound) {
		return false, nil
	}
	return purged > 0, lanes.explain(err, "remove %s from %s", entity, lanes.name)
}

// registered returns the entities that have a durable lane, without those for which only a
// consumer shows it. It returns none to a user who may not ask.
func (q *Queue) registered(ctx context.Context) ([]string, error) {
	lanes := q.lanes()
	keys, err := api.Subjects(ctx, q.js, lanes.stream(), lanes.subject(">"))
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrDenied) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []string
	for key := range keys {
		entity, err := subject.Unescape(strings.TrimPrefix(key, lanes.subject("")))
		if err == nil && subject.ValidateEntity(entity) == nil {
			all = append(all, entity)
		}
	}
	return all, nil
}

func (q *Queue) lanes() *kvBucket { return &kvBucket{js: q.js, name: BucketLanes + q.m.Suffix()} }
