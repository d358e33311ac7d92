package answers

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/state"
)

// First returns the first valid answer to a task that is stored: a terminal envelope of the task's
// addressee that fits the requested schema and was stored in time. It skips invalid
// answers, and returns nil if there is no valid one. corr is the task's, caller the entity
// that sent it.
func (r *Reader) First(ctx context.Context, replies *jetstream.Replies, w state.Wait, caller, corr string) (*envelope.Envelope, error) {
	for after := uint64(0); ; {
		msg, err := replies.Next(ctx, w.Entity, w.TaskID, after)
		switch {
		case errors.Is(err, jetstream.ErrNotFound):
			return nil, nil
		case err != nil:
			return nil, err
		case !w.Until.IsZero() && msg.Time.After(w.Until):
			return nil, nil // as are all later answers
		}
		after = msg.Seq
		reply, err := r.Stored(w.Entity, w.TaskID, corr, caller, &nats.Msg{Data: msg.Data, Header: msg.Header}, msg.Time, nil)
		if err != nil {
			r.Log.Debug("invalid reply ignored", "task", w.TaskID, "from", w.Entity, "err", err)
			continue
		}
		if reply.Type.Terminal() && r.Fits(w.Schema, reply) {
			return reply, nil
		}
	}
}

// Fits reports whether an answer fits the schema, and logs one that does not.
func (r *Reader) Fits(schema string, reply *envelope.Envelope) bool {
	err := requires.Fits(json.RawMessage(schema), reply)
	if err != nil {
		r.Log.Info("answer does not fit requires.result_schema and does not count", "id", reply.ID, "task", reply.ReplyTo, "corr", reply.Corr, "from", reply.From, "err", err)
	}
	return err == nil
}
