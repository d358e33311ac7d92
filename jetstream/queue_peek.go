package jetstream

import (
	"context"
	"fmt"
	"iter"
)

// Peek yields the tasks of an entity and priority that are in [StreamWork],
// those that workers have included, the oldest first, behind a sequence; 0: all.
// It takes none of them. Any replica may answer, so what was stored a moment ago
// may be missing. After an error it yields nothing more.
func (q *Queue) Peek(ctx context.Context, priority, entity string, after uint64) iter.Seq2[Message, error] {
	subj, err := q.m.Work(priority, entity)
	if err != nil {
		return func(yield func(Message, error) bool) { yield(Message{}, fmt.Errorf("peek at tasks: %w", err)) }
	}
	return scan(ctx, q.js, q.name(), subj, after+1)
}
