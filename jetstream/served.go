package jetstream

import (
	"context"
	"errors"

	"github.com/aeemesh/aeemesh/envelope/subject"
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
	err = request(ctx, q.js, "CONSUMER.INFO."+q.name()+"."+c.Config.Durable, nil, nil)
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, natsjs.ErrConsumerNotFound) && !errors.Is(err, natsjs.ErrStreamNotFound) {
		return false, explain(q.js.Conn(), err, "look for the consumer of %s", entity)
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
	ctx, cancel := oneRequest(ctx)
	defer cancel()
	ctx, stop := untilDenied(ctx, q.js.Conn(), kvPrefix(q.js)+lanes.subject(key)+`"`)
	defer stop()
	_, err := lanes.create(ctx, key, []byte(entity))
	switch cause := context.Cause(ctx); {
	case isWrongSequence(err):
		return nil
	case err != nil && errors.Is(cause, ErrDenied):
		err = cause
	}
	return lanes.explain(err, "register %s in %s", entity, lanes.name)
}

// unregister removes the record.
func (q *Queue) unregister(ctx context.Context, entity string) (was bool, err error) {
	lanes := q.lanes()
	key := subject.Escape(entity)
	switch _, err := lanes.get(ctx, key); {
	case errors.Is(err, natsjs.ErrMsgNotFound), errors.Is(err, natsjs.ErrStreamNotFound):
		return false, nil
	case err != nil:
		return false, lanes.explain(err, "look for %s in %s", entity, lanes.name)
	}
	return true, lanes.explain(lanes.remove(ctx, key, 0), "remove %s from %s", entity, lanes.name)
}

func (q *Queue) lanes() *kvBucket { return &kvBucket{js: q.js, name: BucketLanes + q.m.Suffix()} }
