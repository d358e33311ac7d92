package agents

import (
	"context"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// Memory stores the memories of a restored run.
//
// Implementers must compute embeddings anew, because documents have none. They
// must give each item the time to live that it has left. They must skip an item
// of which they have an equally new copy (MemoryItem.CapturedAt), because a run
// is restored each time a worker claims it. They must be safe for concurrent
// use.
type Memory interface {
	// Restore takes the items that may be loaded into a run. It returns an
	// error only if the run cannot go on without them.
	Restore(ctx context.Context, run state.Whose, items []aaif.MemoryItem) error
}

// loadMemory restores a run's memory snapshot before the run continues, and
// enforces the scopes (AAIF, Memory Configuration): items of another user or
// session are dropped, from the document too. Without Options.Memory the
// snapshot stays in the document.
func (l *loop) loadMemory(ctx context.Context, task *mesh.Task, r *run, cp *state.Checkpoint) error {
	all := cp.Doc.MemorySnapshot
	if len(all) == 0 {
		return nil
	}
	e := task.Envelope
	kept, is := orchestrate.Memories(task, cp, r.id)
	if dropped := len(all) - len(kept); dropped > 0 {
		r.memories, r.memoriesAt = &kept, time.Now()
		l.log.Warn("memories of a restored run were dropped: they are another user's or session's, or have expired",
			"id", e.ID, "corr", e.Corr, "intent", e.Intent, "dropped", dropped, "kept", len(kept))
	}
	if l.memory == nil || len(kept) == 0 {
		return nil
	}
	err := restoreMemory(ctx, kept, func(ctx context.Context) error { return l.memory.Restore(ctx, is, kept) })
	if err != nil {
		return envelope.Errorf(envelope.CodeUnavailable, "the memory of the run cannot be restored: %w", err)
	}
	return nil
}
