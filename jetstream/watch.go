package jetstream

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// rewatch calls once repeatedly until ctx ends: immediately if once returned nil (the
// connection came back), after a growing pause if it failed. rewatch returns an error if
// once fails before it has ever read everything, or if the connection is closed for good.
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

// ignoreEnd returns err, or nil if ctx has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
