package worker

import (
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
)

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
