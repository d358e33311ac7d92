package mesh

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
)

// For how long it is taken for known that an entity has a durable lane, or that
// this cannot be seen, and for how long nobody asks a server that did not answer.
// That an entity has none is not remembered: its first worker may start at any time.
const (
	laneKnown   = time.Minute
	laneUnknown = 2 * time.Second
)

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
	durable, err := t.host.node.hasLane(ctx, c.To)
	if err != nil {
		t.host.log.Warn("lane not known, the live one is taken", "to", c.To, "err", err)
	}
	return durable
}

// hasLane reports whether an entity takes tasks over the durable lane.
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
	case err != nil:
		news.until = now.Add(laneUnknown)
	case durable:
		news = laneNews{true, now.Add(laneKnown)}
	default:
		return false, nil
	}
	n.lanes.mu.Lock()
	defer n.lanes.mu.Unlock()
	if n.lanes.known == nil || len(n.lanes.known) >= maxLanes {
		n.lanes.known = map[string]laneNews{}
	}
	n.lanes.known[entity] = news
	return news.durable, err
}
