package calls

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
)

// laneKnown is how long this node remembers that an entity has a durable lane, or that the
// node's NATS user may not look. That an entity has no durable lane is not remembered: its
// first worker may start at any time.
const laneKnown = time.Minute

// lanePatience is how long a run tries to find out whether an entity has a durable lane.
// After that the call goes over the live lane.
const lanePatience = 30 * time.Second

// laneCache remembers which entities have a durable lane.
type laneCache struct {
	mu    sync.Mutex
	known map[string]cachedLane
}

type cachedLane struct {
	durable bool
	until   time.Time
}

// maxLanes bounds the entities that a laneCache remembers.
const maxLanes = 4096

// hasLane reports whether a call goes over the durable lane.
func (o *outgoing) hasLane(ctx context.Context) bool {
	if o.Run == nil || o.c.Live {
		return false
	}
	durable, err := o.LookForLane(ctx, o.c.To)
	if err != nil {
		o.Log.Warn("cannot find out whether the agent has a durable lane; using the live lane", "to", o.c.To, "err", err)
	}
	return durable
}

// LookForLane reports whether an entity has a durable lane. It retries while the server
// does not answer.
func (t *Task) LookForLane(ctx context.Context, entity string) (durable bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lanePatience)
	defer cancel()
	err = t.Port.Persist(ctx, func() (err error) {
		durable, err = t.Node.hasLane(ctx, entity)
		return err
	})
	return durable, err
}

// hasLane reports whether an entity has a durable lane. It asks the server once, without
// retries.
func (n *Node) hasLane(ctx context.Context, entity string) (bool, error) {
	d := n.stores()
	if d == nil {
		return false, nil
	}
	now := time.Now()
	n.lanes.mu.Lock()
	news, ok := n.lanes.known[entity]
	n.lanes.mu.Unlock()
	if ok && now.Before(news.until) {
		return news.durable, nil
	}
	ctx, cancel := context.WithTimeout(ctx, sched.LookTimeout)
	defer cancel()
	durable, err := d.Queue.Served(ctx, entity)
	now = time.Now()
	switch {
	case errors.Is(err, jetstream.ErrDenied):
		news.until = now.Add(laneKnown)
	case durable:
		news = cachedLane{true, now.Add(laneKnown)}
	default:
		return false, err
	}
	n.lanes.mu.Lock()
	defer n.lanes.mu.Unlock()
	if n.lanes.known == nil || len(n.lanes.known) >= maxLanes {
		n.lanes.known = map[string]cachedLane{}
	}
	n.lanes.known[entity] = news
	return news.durable, err
}
