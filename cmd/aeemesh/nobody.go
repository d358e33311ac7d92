package main

import (
	"context"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/mesh"
)

// patienceBeforeAsking is how long no answer is nothing unusual.
const patienceBeforeAsking = 3 * time.Second

// wonder tells a person who waits when no worker of the entity announces
// itself. NATS says at once that nobody listens, but whoever watches the
// subject counts as a listener. The returned function ends it.
func (a *app) wonder(ctx context.Context, node *mesh.Node, entity string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	wait.Go(func() {
		timer := time.NewTimer(patienceBeforeAsking)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		found, err := node.Discover(ctx, entity, time.Second)
		if err == nil && len(found) == 0 && ctx.Err() == nil {
			a.term.warn("no worker announces itself as %s, though somebody listens there; still waiting", entity)
		}
	})
	return func() {
		cancel()
		wait.Wait()
	}
}
