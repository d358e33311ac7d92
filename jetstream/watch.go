package jetstream

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// rewatch calls once again and again, until ctx ends: at once after it has
// returned nil because the connection came back, and after a pause that grows
// when it failed. It fails if once does before it ever read everything there is,
// and when the connection is closed for good.
func rewatch(ctx context.Context, nc *nats.Conn, what string, once func(<-chan nats.Status) (synced bool, err error)) error {
	status := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(status)
	const shortest, longest = 20 * time.Millisecond, 5 * time.Second
	pause := shortest
	for started := false; ; {
		synced, err := once(status)
		switch {
		case ctx.Err() != nil:
			return nil
		case nc.IsClosed():
			return fmt.Errorf("%s: %w", what, nats.ErrConnectionClosed)
		case err != nil && !started && !synced:
			return err
		case err == nil:
			pause = shortest
			continue // reconnected: at once
		}
		started = true
		select {
		case <-ctx.Done():
			return nil
		case <-status:
			pause = shortest
		case <-time.After(pause):
			pause = min(2*pause, longest)
		}
	}
}

// endWatcher ends a watcher by its context. Stopping it would wait for a server
// that may be away. nats.go's reader may be about to hand over another entry:
// it is let go of, or it would wait for ever. The bound is for a connection
// that was closed just when the watcher was made, which nats.go does not tell.
func endWatcher(cancel context.CancelFunc, w natsjs.KeyWatcher) {
	cancel()
	bound := time.NewTimer(time.Second)
	defer bound.Stop()
	for {
		select {
		case _, ok := <-w.Updates():
			if !ok {
				return
			}
		case <-bound.C:
			return
		}
	}
}
