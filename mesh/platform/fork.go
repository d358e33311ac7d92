package platform

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/state"
)

// Fork starts a new run from a checkpoint of another run; see [state.Checkpoint.Fork].
// of.TaskID is the id of the new task (default: a new id), of.From is its sender (default:
// the client's own entity). The new run waits in the queue for a worker. A checkpoint of another
// platform has no task of this mesh: its run is given to the agent with its agent_id, and
// Fork fails with transfer.ErrUnknownAgent if no such agent is served here.
//
// A task that cannot be queued here, because it is too large for instance, is refused. Then
// the checkpoint is stored before the run is queued. If queueing fails, the run is stored, and
// a worker's sweep queues it.
func (p *Platform) Fork(ctx context.Context, c *state.Checkpoint, of state.ForkOf) (client.Submitted, error) {
	d := p.cfg.Stores
	if d == nil {
		return client.Submitted{}, sender.ErrLiveOnly
	}
	if of.TaskID == "" {
		of.TaskID = envelope.NewID()
	}
	of.From = cmp.Or(of.From, p.cfg.Entity)
	if c.Mesh.Entity == "" {
		served := &served{workers: discoverBy(p.cfg.Client), codec: func(string) state.Codec { return d.Codec }}
		entity, err := served.entity(ctx, c.Doc.AgentID, "")
		if err != nil {
			return client.Submitted{}, fmt.Errorf("agent_id %q: %w", clip.Text(c.Doc.AgentID, 128), err)
		}
		c = c.Clone()
		if err := handoff.Adopt(c, entity, of.From); err != nil {
			return client.Submitted{}, err
		}
	}
	fork, err := c.Fork(of, time.Now())
	if err != nil {
		return client.Submitted{}, err
	}
	if err := p.mayQueue(fork); err != nil {
		return client.Submitted{}, fmt.Errorf("the run's task: %w", err)
	}
	data, err := d.Codec.Over(0).Encode(fork)
	if err != nil {
		return client.Submitted{}, err
	}
	if _, err := d.States.Put(ctx, fork.ID(), 0, data); err != nil {
		return client.Submitted{}, fmt.Errorf("store the fork: %w", err)
	}
	r := client.Submitted{TaskID: of.TaskID, Run: fork.Doc.RunID}
	_, err = client.Requeue(ctx, d.Queue, fork)
	return r, err
}
