package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/jetstream"
)

// laneLook is how often a worker looks whether the durable lane is there that was
// not when it started. It also looks whenever its connection has come back.
const laneLook = 30 * time.Second

// laneWait looks for the durable lane until it is there.
type laneWait struct {
	ready chan struct{} // closed when it is
	why   atomic.Pointer[error]
}

// awaitLane begins to look, until ctx ends. look says what the lane lacks, and
// first what it lacked the first time; came is called before ready is closed.
func awaitLane(ctx context.Context, conn *nats.Conn, every time.Duration, look func(context.Context) error, first error, came func()) *laneWait {
	w := &laneWait{ready: make(chan struct{})}
	w.why.Store(&first)
	status := conn.StatusChanged(nats.CONNECTED)
	go func() {
		defer conn.RemoveStatusListener(status)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			case <-status:
			}
			if !conn.IsConnected() {
				continue
			}
			err := look(ctx)
			if err == nil {
				came()
				close(w.ready)
				return
			}
			if ctx.Err() == nil {
				w.why.Store(&err)
			}
		}
	}()
	return w
}

// lacks is what the lane lacked the last time.
func (w *laneWait) lacks() error { return *w.why.Load() }

// laneHelp is what to do where there is no durable lane for a worker of entity.
func laneHelp(err error, entity string) string {
	var lacking lackingError
	switch {
	case errors.Is(err, jetstream.ErrDenied):
		return "\"aeemesh auth perms " + entity + " --durable\" prints what the NATS user needs"
	case errors.As(err, &lacking):
		return "\"aeemesh apply\" makes the streams and buckets"
	case errors.Is(err, jetstream.ErrUnavailable):
		return "the server needs jetstream {} in its configuration, and in a cluster a majority of its servers; \"aeemesh doctor\" tells more"
	}
	return "\"aeemesh doctor\" tells more"
}
