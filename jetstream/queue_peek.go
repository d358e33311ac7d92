package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Peek yields the tasks of an entity and priority in [StreamWork] after a sequence (0:
// all), the oldest first, including those that workers are running. It removes none. Any
// replica may answer, so a task that was stored a moment ago may be missing. After an
// error it yields nothing more. A user who may not read the whole stream gets only the
// newest task, and needs permission for $JS.API.DIRECT.GET.<stream>.<subject>.
func (q *Queue) Peek(ctx context.Context, priority, entity string, after uint64) iter.Seq2[Message, error] {
	subj, err := q.m.Work(priority, entity)
	if err != nil {
		return func(yield func(Message, error) bool) { yield(Message{}, fmt.Errorf("peek at tasks: %w", err)) }
	}
	return func(yield func(Message, error) bool) {
		if !q.fenced.Load() {
			for msg, err := range api.Scan(ctx, q.js, q.name(), subj, after+1) {
				if q.fence(err); q.fenced.Load() {
					break
				}
				if !yield(msg, err) {
					return
				}
			}
		}
		if !q.fenced.Load() {
			return
		}
		msg, err := api.NewestPublished(ctx, q.js, q.name(), subj)
		switch {
		case errors.Is(err, natsjs.ErrMsgNotFound) || err == nil && msg.Seq <= after:
		case err != nil:
			yield(Message{}, api.Explain(q.js.Conn(), err, "peek at %s", subj))
		default:
			yield(msg, nil)
		}
	}
}
