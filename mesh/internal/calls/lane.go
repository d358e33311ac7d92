package calls

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/state"
)

// laneKnown is how long this node remembers that an entity has a durable lane, or that the node's
// NATS user may not look. It does not remember that an entity has none: the first worker may start
// at any time.
const laneKnown = time.Minute

// lanePatience is how long a run tries to find out whether an entity has a durable lane.
// After that the call fails with errLaneUnknown.
const lanePatience = 30 * time.Second

// errLaneUnknown: the server does not say whether an entity has a durable lane. A call is not sent
// live then, because a durable one is to be done once, however often its sender crashes.
var errLaneUnknown = envelope.Errorf(envelope.CodeUnavailable, "JetStream does not say for now whether the agent takes durable tasks")

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

// hasLane reports whether a call goes over the durable lane. A call that was sent over it does,
// whatever the server says now: sent live it would be another task.
func (o *outgoing) hasLane(ctx context.Context) (bool, error) {
	if o.Run == nil || o.c.Live {
		return false, nil
	}
	if o.sentDurably() {
		return true, nil
	}
	durable, err := o.LookForLane(ctx, o.c.To)
	if errors.Is(err, jetstream.ErrDenied) {
		o.Log.Warn("may not find out whether the agent has a durable lane; using the live lane", "to", o.c.To, "err", err)
		return false, nil
	}
	return durable, err
}

// sentDurably reports whether the run's checkpoint names the call as sent over the durable lane.
func (o *outgoing) sentDurably() bool {
	return o.Run != nil && slices.ContainsFunc(o.Run.openCalls(o.c.Key), func(call state.Call) bool { return !call.Live && call.To == o.c.To })
}

// LookForLane reports whether an entity has a durable lane. It retries while the server
// does not answer.
func (t *Task) LookForLane(ctx context.Context, entity string) (durable bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lanePatience, errLaneUnknown)
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
	case errors.Is(err, jetstream.ErrDenied) && !jetstream.Away(err):
		news = cachedLane{false, now.Add(laneKnown)}
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
