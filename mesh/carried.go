package mesh

import (
	"context"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
)

// answer is what can be said about a message of the queue.
type answer int

const (
	no answer = iota
	yes
	maybe // this worker may not read the queue, and its consumers do not tell yet
)

// carried reports whether the message that a run's record names is still in the
// queue. A worker with permissions for its own entity alone may not ask for a message
// by its sequence; then the numbers of its consumers say when it is gone for sure.
// since is a time, by the server's clock, at which the message was stored already.
func (l *lane) carried(ctx context.Context, since time.Time, work uint64) (answer, error) {
	there, err := l.cfg.Queue.Has(ctx, work)
	switch {
	case errors.Is(err, jetstream.ErrDenied):
		if l.queue.Gone(work, since) {
			return no, nil
		}
		return maybe, nil
	case err != nil:
		return no, err
	case there:
		return yes, nil
	}
	return no, nil
}

// laterPause is for how long a message is given back whose run another message may
// have.
const laterPause = 5 * time.Second
