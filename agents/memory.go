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

// Memory is where the memories of a run go that is restored.
//
// Implementers must compute embeddings anew, for a document has none; give each
// item the time to live that it has left; leave an item alone of which they have
// one that is as new (MemoryItem.CapturedAt), for a run is restored every time
// that a worker takes it; and be safe for concurrent use.
type Memory interface {
	// Restore takes the items that may be loaded into a run. It returns an
	// error only if the run cannot go on without them.
	Restore(ctx context.Context, run state.Whose, items []aaif.MemoryItem) error
}

// loadMemory restores the snapshot of a run before it goes on, under the walls
// of the scopes (AAIF, Memory Configuration): what is another user's or another
// session's is dropped, from the document too. Where there is nothing to restore
// it to, the snapshot stays in the document.
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
