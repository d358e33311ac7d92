package jetstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Drawn says what workers have drawn of an entity's messages of one priority.
type Drawn struct {
	Last       uint64 // the highest sequence that was delivered
	Unacked    int    // messages that are delivered and not acknowledged
	Deliveries uint64 // number of deliveries since the consumer was made; redeliveries count
}

// Drawn reads what workers have drawn from [StreamWork], of one priority, or with "" of the delayed
// tasks that are due ([Queue.Due]). It needs permission for $JS.API.CONSUMER.INFO of the consumer.
func (q *Queue) Drawn(ctx context.Context, entity, priority string) (Drawn, error) {
	spec, err := DueConsumer(q.m, entity)
	if priority != "" {
		spec, err = WorkConsumer(q.m, priority, entity, 0)
	}
	if err != nil {
		return Drawn{}, err
	}
	var info natsjs.ConsumerInfo
	err = api.Request(ctx, q.js, "CONSUMER.INFO."+spec.StreamName(q.m)+"."+spec.Config.Durable, nil, &info)
	if errors.Is(err, natsjs.ErrConsumerNotFound) || errors.Is(err, natsjs.ErrStreamNotFound) {
		return Drawn{}, nil
	}
	if err != nil {
		return Drawn{}, api.Explain(q.js.Conn(), err, "look at %s", spec.Name(q.m))
	}
	return Drawn{Last: info.Delivered.Stream, Unacked: info.NumAckPending, Deliveries: info.Delivered.Consumer}, nil
}

// MayHave reports whether a worker may have the message of this sequence now.
func (d Drawn) MayHave(seq uint64) bool { return seq <= d.Last && d.Unacked > 0 }

// MayHaveDrawn reports whether a worker may have drawn the message of this sequence since before was read.
func (d Drawn) MayHaveDrawn(seq uint64, before Drawn) bool {
	return d != before && (seq <= d.Last || d.Deliveries < before.Deliveries) // fewer: the consumer was reset
}

// Remove deletes a message from [StreamWork], or fails with [ErrNotFound]. It needs
// permission for $JS.API.STREAM.MSG.DELETE.<stream>, which cannot be restricted to the
// messages of one entity: it is for operators.
func (q *Queue) Remove(ctx context.Context, seq uint64) error {
	return remove(ctx, q.js, q.name(), seq)
}

// remove deletes a message of a stream, or fails with [ErrNotFound].
func remove(ctx context.Context, js natsjs.JetStream, stream string, seq uint64) error {
	err := api.Request(ctx, js, "STREAM.MSG.DELETE."+stream, map[string]any{"seq": seq, "no_erase": true}, nil)
	if api.HasCode(err, jsSequenceNotFound, jsDeleteFailed) {
		// The server uses the second code for other failures too.
		if _, found := api.LeaderGet(ctx, js, stream, map[string]any{"seq": seq}); errors.Is(found, natsjs.ErrMsgNotFound) {
			return fmt.Errorf("remove message %d of %s: %w", seq, stream, ErrNotFound)
		}
	}
	return api.Uncertain(api.Explain(js.Conn(), err, "remove message %d of %s", seq, stream))
}

// nats-server's codes for a message that cannot be deleted.
const (
	jsSequenceNotFound natsjs.ErrorCode = 10043
	jsDeleteFailed     natsjs.ErrorCode = 10057
)

// MayRemove returns the error that a Remove would return now, such as [ErrDenied] if this user may
// not remove messages; nil if a Remove can succeed.
func (q *Queue) MayRemove(ctx context.Context) error { return q.mayRemove(ctx, q.name()) }

func (q *Queue) mayRemove(ctx context.Context, stream string) error {
	err := api.Request(ctx, q.js, "STREAM.MSG.DELETE."+stream, nil, nil) // the request names no message, so the stream's leader refuses it
	if api.HasCode(err, jsBadRequest) {
		return nil
	}
	return api.Explain(q.js.Conn(), err, "look whether messages of %s may be removed", stream)
}

// jsBadRequest is nats-server's code for a request that has no body where it needs one.
const jsBadRequest natsjs.ErrorCode = 10003

// Retired says what was deleted of an entity.
type Retired struct {
	Consumers []string `json:"consumers"` // <stream>/<name>
	Slots     uint64   `json:"slots"`
	Lane      bool     `json:"lane"` // it was recorded that the entity has a durable lane
}

// Retire deletes what an entity's workers have left on the server: its consumers, its
// slots, and the record of its durable lane. Messages, runs and dead letters stay. A worker of the entity recreates what it
// needs: the record within about a minute. It needs permission for $JS.API.CONSUMER.DELETE of the consumers and
// $JS.API.STREAM.PURGE of the buckets [BucketSlots] and [BucketLanes].
func Retire(ctx context.Context, js natsjs.JetStream, m subject.Map, entity string) (Retired, error) {
	out := Retired{Consumers: []string{}}
	specs, err := Consumers(m, entity, 0)
	if err != nil {
		return out, fmt.Errorf("retire: %w", err)
	}
	for _, spec := range specs {
		err := api.Request(ctx, js, "CONSUMER.DELETE."+spec.StreamName(m)+"."+spec.Config.Durable, nil, nil)
		if errors.Is(err, natsjs.ErrConsumerNotFound) || errors.Is(err, natsjs.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return out, api.Explain(js.Conn(), err, "delete %s", spec.Name(m))
		}
		out.Consumers = append(out.Consumers, spec.Name(m))
	}
	if out.Lane, err = NewQueue(js, m).unregister(ctx, entity); err != nil {
		return out, err
	}
	bucket := BucketSlots + m.Suffix()
	out.Slots, err = api.Purge{Filter: "$KV." + bucket + "." + subject.Escape(entity) + ".>"}.Do(ctx, js, "KV_"+bucket)
	if errors.Is(err, natsjs.ErrStreamNotFound) {
		return out, nil
	}
	return out, api.Explain(js.Conn(), err, "purge the slots of %s", entity)
}
