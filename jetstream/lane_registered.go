package jetstream

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
)

// A notifier keeps its lanes registered in [BucketLanes]. A record may disappear under a running
// worker: the entity was retired, the bucket was purged, or the server has another store. A
// sleeping lane would not notice it, and its callers would send tasks over the live lane.

const (
	// registerEvery is the pause between two looks, and registerAgain that after one that failed.
	// Callers remember for a minute, too, that an entity has a durable lane.
	registerEvery = time.Minute
	registerAgain = 5 * time.Second
	// registerAtOnce is how many lanes register at once.
	registerAtOnce = 16
)

// keepRegistered looks for the records from time to time and after a reconnect, until ctx ends. It
// ends early if this user may not look for the records, or not write them: each further attempt
// would be a line in the server's log.
func (n *Notifier) keepRegistered(ctx context.Context) {
	nc := n.q.js.Conn()
	status := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(status)
	timer := time.NewTimer(n.register) // a lane registers when it is opened
	defer timer.Stop()
	for !n.unlisted.Load() {
		select {
		case <-ctx.Done():
			return
		case <-status:
		case <-timer.C:
		}
		pause := n.register
		switch err := n.registerMissing(ctx); {
		case errors.Is(err, ErrDenied):
			n.unlisted.Store(true)
		case err != nil:
			pause = min(pause, registerAgain)
		}
		timer.Reset(pause)
	}
}

// registerMissing registers the lanes that have no record. If all have one, it only reads the keys
// of the bucket, with one request for many lanes.
func (n *Notifier) registerMissing(ctx context.Context) error {
	n.mu.Lock()
	missing := slices.Collect(maps.Keys(n.lanes))
	n.mu.Unlock()
	lanes := n.q.lanes()
	filters := []string{lanes.subject(">")}
	if len(missing) <= pollEach {
		filters = filters[:0]
		for _, entity := range missing {
			filters = append(filters, lanes.subject(subject.Escape(entity)))
		}
	}
	recorded := map[string]int{}
	for _, f := range filters {
		found, err := api.Subjects(ctx, n.q.js, lanes.stream(), f)
		if err != nil {
			return err
		}
		maps.Copy(recorded, found)
	}
	missing = slices.DeleteFunc(missing, func(entity string) bool { return recorded[lanes.subject(subject.Escape(entity))] > 0 })
	return n.registerAll(ctx, missing)
}

func (n *Notifier) registerAll(ctx context.Context, entities []string) error {
	var running errgroup.Group
	for part := range slices.Chunk(entities, max(1, (len(entities)+registerAtOnce-1)/registerAtOnce)) {
		running.Go(func() error {
			for _, entity := range part {
				if err := n.registerOne(ctx, entity); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return running.Wait()
}

// registerOne registers an entity, unless its lane has left meanwhile.
func (n *Notifier) registerOne(ctx context.Context, entity string) error {
	n.mu.Lock()
	there := len(n.lanes[entity]) > 0
	n.mu.Unlock()
	if !there || ctx.Err() != nil {
		return nil
	}
	return n.q.register(ctx, entity)
}
