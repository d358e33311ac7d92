package jetstream

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
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
