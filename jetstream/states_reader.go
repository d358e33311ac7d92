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
	// In a cluster the first pull of a new consumer can be lost, because the server that
	// receives the pull may not know the consumer's server yet. It is noticed only by
	// missing heartbeats, after twice their interval.
	if r.iter, err = cons.Messages(natsjs.PullExpiry(5*time.Second), natsjs.PullHeartbeat(readHeartbeat)); err != nil {
		return nil, explain(js.Conn(), err, "read %s", name)
	}
	return r, nil
}

// readHeartbeat is the heartbeat interval of a reader's idle pull. The wait for a message
// must be longer than twice that.
const readHeartbeat = 500 * time.Millisecond

// readerIdle is how long a server keeps the consumer of a reader that has stopped
// pulling. If the reader pulls again later, nats.go creates another consumer.
const readerIdle = 30 * time.Second

// next waits for a message. With stored, it regularly checks whether the consumer has
// pending messages, and returns nil if not.
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
