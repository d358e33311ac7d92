package jetstream

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A reader reads one stream through an ephemeral consumer.
type reader struct {
	cons natsjs.Consumer
	iter natsjs.MessagesContext
}

func openReader(ctx context.Context, js natsjs.JetStream, name string, cfg natsjs.OrderedConsumerConfig) (*reader, error) {
	cfg.InactiveThreshold = readerIdle
	cons, err := js.OrderedConsumer(ctx, name, cfg)
	if err != nil {
		return nil, explain(js.Conn(), err, "read %s", name)
	}
	r := &reader{cons: cons}
	// In a cluster the first pull after a consumer was made can be lost: its
	// server may not be known yet where the pull arrives. Only the missing
	// heartbeats tell, after twice their interval.
	if r.iter, err = cons.Messages(natsjs.PullExpiry(5*time.Second), natsjs.PullHeartbeat(readHeartbeat)); err != nil {
		return nil, explain(js.Conn(), err, "read %s", name)
	}
	return r, nil
}

// readHeartbeat is how often a server says that it is there while there is
// nothing to read. The wait for a message must be longer than twice that.
const readHeartbeat = 500 * time.Millisecond

// readerIdle is how long a server keeps the consumer of a reader that is gone, or
// has no use for more. Should the reader want more after that, it makes another.
const readerIdle = 30 * time.Second

// next waits for a message. Within what was stored it looks up now and then
// whether there still is one to come, and returns nil if not.
func (r *reader) next(ctx context.Context, stored bool) (natsjs.Msg, error) {
	for {
		wait, cancel := ctx, context.CancelFunc(func() {})
		if stored {
			wait, cancel = context.WithTimeout(ctx, 5*readHeartbeat)
		}
		msg, err := r.iter.Next(natsjs.NextContext(wait))
		cancel()
		if err == nil || ctx.Err() != nil || !stored || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) {
			return msg, err
		}
		info, err := r.cons.Info(ctx)
		if err == nil && info.NumPending == 0 {
			return nil, nil
		}
	}
}
