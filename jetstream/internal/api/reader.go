package api

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A Reader reads the headers of one stream through an ephemeral consumer.
type Reader struct {
	js     natsjs.JetStream
	stream string
	cons   natsjs.Consumer
	iter   natsjs.MessagesContext
}

// OpenReader opens a reader of a stream. It fails with [ErrDenied] as soon as the server
// refuses the consumer.
func OpenReader(ctx context.Context, js natsjs.JetStream, stream string, cfg natsjs.OrderedConsumerConfig) (*Reader, error) {
	ctx, stop := UntilDenied(ctx, js.Conn(), Prefix(js)+"CONSUMER.CREATE."+stream+".")
	defer stop()
	cfg.InactiveThreshold = readerIdle
	cfg.MaxResetAttempts = 1 // nats.go ignores the context while it makes another consumer
	cons, err := js.OrderedConsumer(ctx, stream, cfg)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrDenied) {
		return nil, cause
	}
	if err != nil {
		return nil, Explain(js.Conn(), err, "read %s", stream)
	}
	r := &Reader{js: js, stream: stream, cons: cons}
	// In a cluster the first pull of a new consumer can be lost, because the server that
	// receives the pull may not know the consumer's server yet. It is noticed only by
	// missing heartbeats, after twice their interval.
	if r.iter, err = cons.Messages(natsjs.PullMaxMessages(headersBatch), natsjs.PullExpiry(5*time.Second), natsjs.PullHeartbeat(readHeartbeat)); err != nil {
		return nil, Explain(js.Conn(), err, "read %s", stream)
	}
	return r, nil
}

// headersBatch is how many messages without a body a reader requests at once, some MiB. On
// a busy machine each request costs a wait.
const headersBatch = 8192

// readHeartbeat is the heartbeat interval of a reader's idle pull. The wait for a message
// must be longer than twice that.
const readHeartbeat = 500 * time.Millisecond

// readerIdle is how long a server keeps the consumer of a reader that has stopped
// pulling. If the reader pulls again later, nats.go creates another consumer.
const readerIdle = 30 * time.Second

// Next waits for a message. It regularly checks whether the consumer has pending messages, and
// returns nil if it has none.
func (r *Reader) Next(ctx context.Context) (natsjs.Msg, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, 5*readHeartbeat)
		msg, err := r.iter.Next(natsjs.NextContext(wait))
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) {
			return msg, err
		}
		info, err := r.cons.Info(ctx)
		if err == nil && info.NumPending == 0 {
			return nil, nil
		}
	}
}

// Close ends the reader and deletes its consumer, which the server would otherwise keep for
// a while. The server limits the consumers of a stream (nats-server: 1000), and every
// worker reads the runs of its agents regularly.
func (r *Reader) Close() {
	r.iter.Stop()
	info := r.cons.CachedInfo()
	if info == nil || !r.js.Conn().IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.js.DeleteConsumer(ctx, r.stream, info.Name) // otherwise the server deletes it after readerIdle
}
