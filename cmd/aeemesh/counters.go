package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/aeemesh/aeemesh/jetstream"
)

// meshCounters are the mesh's, once a worker is connected: agents are made
// before.
type meshCounters struct {
	mesh atomic.Pointer[jetstream.Counters]
}

func (c *meshCounters) use(mesh *jetstream.Counters) { c.mesh.Store(mesh) }

// Add implements agents.Counters.
func (c *meshCounters) Add(ctx context.Context, n int64, kind string, ids ...string) (int64, error) {
	mesh := c.mesh.Load()
	if mesh == nil {
		return 0, errors.New("not connected yet")
	}
	return mesh.Add(ctx, n, kind, ids...)
}
