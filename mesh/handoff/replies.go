package handoff

import (
	"context"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// follow gives out the replies of a handed-over run until the terminal one.
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

// Command gives a command about a handed-over run, a signed envelope that came to
// the source, to the run's entity here, and returns its answer, an envelope too.
func (r *Receiver) Command(ctx context.Context, id string, command []byte) ([]byte, error) {
	if r.cfg.Forward == nil {
		return nil, fmt.Errorf("%w: commands are not taken here", state.ErrHandoffAborted)
	}
	h, err := r.load(ctx, id)
	if err != nil {
		return nil, err
	}
	if phase := h.migration().Phase; phase != state.PhaseRunning && phase != state.PhaseAccepted {
		return nil, fmt.Errorf("handoff %s: %w", id, ErrNotStaged)
	}
	e, err := envelope.Parse(command)
	if err != nil || e.To != h.c.Mesh.Entity {
		return nil, fmt.Errorf("%w: no command for %s", state.ErrHandoffInvalid, h.c.Mesh.Entity)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return r.cfg.Forward(ctx, h.c.Mesh.Entity, command)
}
