package mesh

import (
	"context"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state/run"
)

// messageQueued reports whether the message that a run's record names is still in the queue. A
// worker with permissions for its own entity alone may not ask for a message by its
// sequence: then the state of its consumers tells for sure when the message is gone, and
// until then it is run.Maybe. since is a time, by the server's clock, at which the message
// was already stored.
func (l *lane) messageQueued(ctx context.Context, since time.Time, work uint64) (run.Fact, error) {
	there, err := l.cfg.Queue.Has(ctx, work)
	switch {
	case errors.Is(err, jetstream.ErrDenied):
		if l.queue.Gone(work, since) {
			return run.No, nil
		}
		return run.Maybe, nil
	case err != nil:
		return 0, err
	case there:
		return run.Yes, nil
	}
	return run.No, nil
}

// laterPause is the delay of a nak for a message whose run another message may carry.
const laterPause = 5 * time.Second
