package worker

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/jetstream"
)

// lookAgain looks for a part of JetStream that a worker has not found at its start: after each pause,
// after each wake, and whenever conn has connected again, until look returns 0 as the next pause or
// ctx ends.
func lookAgain(ctx context.Context, conn *nats.Conn, pause time.Duration, wake <-chan struct{}, look func(context.Context) time.Duration) {
	status := conn.StatusChanged(nats.CONNECTED)
	defer conn.RemoveStatusListener(status)
	for pause > 0 {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-wake:
		case <-status:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
		if conn.IsConnected() {
			pause = look(ctx)
		}
	}
}

// Pauses between two looks. A request that is denied is a line in the server's log.
const (
	shortestPause = time.Second / 4
	deniedPause   = 20 * laneInterval
)

// absent reports whether an error means that JetStream, or what was looked for, is not there, or not
// for this user. After any other error it may be there.
func absent(err error) bool {
	return errors.Is(err, jetstream.ErrNotFound) || jetstream.Off(err) || forbidden(err)
}

func forbidden(err error) bool { return errors.Is(err, jetstream.ErrDenied) && !jetstream.Away(err) }

// pauses are the pauses between looks: they grow as long as there is no answer.
type pauses struct{ last time.Duration }

// after returns the pause after a look with this error.
func (p *pauses) after(err error) time.Duration {
	switch {
	case forbidden(err):
		p.last = deniedPause
	case absent(err):
		p.last = laneInterval
	default:
		p.last = min(max(shortestPause, 2*p.last), laneInterval)
	}
	return p.last
}
