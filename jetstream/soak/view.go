package soak

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream"
)

// A view is the observer's connection to one system.
type view struct {
	conn   *nats.Conn
	js     natsjs.JetStream
	second bool // the second system

	records, replies atomic.Uint64 // the last sequence read of each stream
}

// run observes until ctx ends.
func (o *observer) run(ctx context.Context) error {
	sub, err := o.views[0].conn.Subscribe(o.m.AllReplies(), func(msg *nats.Msg) { o.reply(msg.Data, reply{At: time.Now()}) })
	if err != nil {
		return err
	}
	defer sub.Unsubscribe()
	queued, err := o.views[0].conn.Subscribe(o.m.AllWork(), func(msg *nats.Msg) { o.queued(msg.Data) })
	if err != nil {
		return err
	}
	defer queued.Unsubscribe()
	var wait sync.WaitGroup
	var records, replies jetstream.Spec
	for _, s := range jetstream.Topology() {
		switch s.Name {
		case jetstream.BucketState:
			records = s
		case jetstream.StreamReply:
			replies = s
		}
	}
	for _, v := range o.views {
		wait.Go(func() {
			v.follow(ctx, records.StreamName(o.m), &v.records, func(msg natsjs.Msg, meta *natsjs.MsgMetadata) { o.record(v, msg, meta) })
		})
		wait.Go(func() {
			v.follow(ctx, replies.StreamName(o.m), &v.replies, func(msg natsjs.Msg, meta *natsjs.MsgMetadata) { o.stored(v, msg, meta) })
		})
	}
	wait.Wait()
	return nil
}

// stored records a stored reply.
func (o *observer) stored(v *view, msg natsjs.Msg, meta *natsjs.MsgMetadata) {
	r := reply{Stored: true, Seq: meta.Sequence.Stream, At: meta.Timestamp}
	if v.second {
		o.replyThere(msg.Data(), r)
		return
	}
	o.reply(msg.Data(), r)
}

// follow reads a stream from its beginning, in order. After any failure, a silent
// consumer included, it continues after the last message.
func (v *view) follow(ctx context.Context, stream string, last *atomic.Uint64, f func(natsjs.Msg, *natsjs.MsgMetadata)) {
	for ctx.Err() == nil {
		if err := v.read(ctx, stream, last, f); err != nil {
			pause.For(ctx, 100*time.Millisecond)
		}
	}
}

// silence is how long a consumer may deliver nothing before another one is created.
const silence = 2 * time.Second

func (v *view) read(ctx context.Context, stream string, last *atomic.Uint64, f func(natsjs.Msg, *natsjs.MsgMetadata)) error {
	once, done := context.WithTimeout(ctx, silence)
	defer done()
	cons, err := v.js.OrderedConsumer(once, stream, natsjs.OrderedConsumerConfig{DeliverPolicy: natsjs.DeliverByStartSequencePolicy, OptStartSeq: last.Load() + 1, InactiveThreshold: time.Minute})
	if err != nil {
		return err
	}
	it, err := cons.Messages()
	if err != nil {
		return err
	}
	defer it.Stop()
	for {
		quiet, over := context.WithTimeout(ctx, silence)
		msg, err := it.Next(natsjs.NextContext(quiet))
		over()
		if err != nil {
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		if seq := meta.Sequence.Stream; seq > last.Load() {
			f(msg, meta)
			last.Store(seq)
		}
	}
}

// caughtUp waits until all stored messages have been read.
func (o *observer) caughtUp(ctx context.Context) error {
	for _, v := range o.views {
		for name, last := range map[string]*atomic.Uint64{"KV_" + jetstream.BucketState + o.m.Suffix(): &v.records, jetstream.StreamReply + o.m.Suffix(): &v.replies} {
			if err := poll(ctx, 100*time.Millisecond, func() error {
				s, err := v.js.Stream(ctx, name)
				if err != nil {
					return err
				}
				if have, want := last.Load(), s.CachedInfo().State.LastSeq; have < want {
					return fmt.Errorf("read %s up to %d, and it goes to %d", name, have, want)
				}
				return nil
			}); err != nil {
				return err
			}
		}
	}
	return nil
}
