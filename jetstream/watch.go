package jetstream

import (
	"context"
	"errors"
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

// openWatcher opens a watcher that lives until ctx ends or the returned function
// is called, and waits for it for at most within: the watcher lives as long as the
// context that it is opened with, so that cannot hold the bound. There is either a
// watcher or an error; the function may be called in both cases.
func openWatcher(ctx context.Context, within time.Duration, open func(context.Context) (natsjs.KeyWatcher, error)) (natsjs.KeyWatcher, func(), error) {
	watching, cancel := context.WithCancel(ctx)
	bound := time.AfterFunc(within, cancel)
	w, err := open(watching)
	late := !bound.Stop() // its cancel may be still to come
	switch {
	case err == nil && late:
		endWatcher(cancel, w)
		err = context.DeadlineExceeded
	case err != nil && late && errors.Is(err, context.Canceled) && ctx.Err() == nil:
		err = context.DeadlineExceeded
	}
	if err != nil {
		return nil, cancel, err
	}
	return w, func() { endWatcher(cancel, w) }, nil
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
