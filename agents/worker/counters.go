package worker

import (
	"context"
	"sync/atomic"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/jetstream/counter"
)

// lateCounters are the mesh's shared counters. Agents are made before the worker
// is connected, so until it has a durable lane there are no counters.
type lateCounters struct {
	mesh atomic.Pointer[counter.Counters]
}

func (c *lateCounters) use(mesh *counter.Counters) { c.mesh.Store(mesh) }

// Add implements [agents.Counters].
func (c *lateCounters) Add(ctx context.Context, n int64, owner, kind string, ids ...string) (int64, error) {
	mesh := c.mesh.Load()
	if mesh == nil {
		return 0, agents.ErrNoCounters
	}
	return mesh.Add(ctx, n, owner, kind, ids...)
}
