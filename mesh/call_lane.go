package mesh

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
)

// For how long it is taken for known that an entity has a durable lane, or that
// this cannot be seen. That an entity has none is not remembered: its first worker
// may start at any time.
const laneKnown = time.Minute

// lanePatience is for how long a run waits for a server that does not say whether
// an entity has a durable lane, before it takes the live one.
const lanePatience = 30 * time.Second

// laneBook remembers which entities have a durable lane.
type laneBook struct {
	mu    sync.Mutex
	known map[string]laneNews
}

type laneNews struct {
	durable bool
	until   time.Time
}

// maxLanes bounds what is remembered.
const maxLanes = 4096

// hasLane reports whether a call goes over the durable lane.
func (t *Task) hasLane(ctx context.Context, c *Call) bool {
	if t.run == nil || c.Live {
		return false
	}
	durable, err := t.lookForLane(ctx, c.To)
	if err != nil {
		t.host.log.Warn("lane not known, the live lane is used", "to", c.To, "err", err)
	}
	return durable
}

// lookForLane reports whether an entity takes tasks over the durable lane.
func (t *Task) lookForLane(ctx context.Context, entity string) (durable bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lanePatience)
	defer cancel()
	err = t.persist(ctx, func() (err error) {
		durable, err = t.host.node.hasLane(ctx, entity)
		return err
	})
	return durable, err
}

// hasLane is lookForLane, once.
func (n *Node) hasLane(ctx context.Context, entity string) (bool, error) {
	d := n.durable()
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
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	durable, err := d.Queue.Served(ctx, entity)
	now = time.Now()
	switch {
	case errors.Is(err, jetstream.ErrDenied):
		news.until = now.Add(laneKnown)
	case durable:
		news = laneNews{true, now.Add(laneKnown)}
	default:
		return false, err
	}
	n.lanes.mu.Lock()
	defer n.lanes.mu.Unlock()
	if n.lanes.known == nil || len(n.lanes.known) >= maxLanes {
		n.lanes.known = map[string]laneNews{}
	}
	n.lanes.known[entity] = news
	return news.durable, err
}
