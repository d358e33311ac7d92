package handoff

import (
	"context"
	"fmt"

	"github.com/aeemesh/aeemesh/state"
)

// follow yields the replies of a transferred run, up to the terminal one.
func (r *Receiver) follow(ctx context.Context, id string, after uint64, give func(Reply) error) error {
	h, err := r.load(ctx, id)
	if err != nil {
		return err
	}
	taskID := h.c.Mesh.TaskID
	if taskID == "" || h.migration().Phase == state.PhaseRefused {
		return fmt.Errorf("handoff %s: %w", id, ErrNotStaged)
	}
	for reply, err := range r.cfg.Replies.Follow(ctx, h.c.Mesh.Entity, taskID, after) {
		if err != nil {
			return err
		}
		if err := give(reply); err != nil || reply.Last {
			return err
		}
	}
	return ctx.Err()
}
