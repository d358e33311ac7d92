package replay

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
)

// Options say what to read.
type Options struct {
	// Filters are the patterns to read, by stream. They must not overlap.
	Filters map[string][]string

	// Since is the time of the first message. Zero: all stored messages.
	Since time.Time

	// Follow continues with new messages after the stored ones.
	Follow bool

	// Look is how often Follow reads the streams while no message arrives. Default: 5 s.
	Look time.Duration
}

// Messages reads stored messages in the order of time, without strays. The sequence ends
// at the last message stored at the time when it is reached, or with ctx; after an error
// it yields nothing more. With Follow it also subscribes to the patterns, and reads each
// published message from its stream.
func Messages(ctx context.Context, js natsjs.JetStream, opts Options) iter.Seq2[api.Message, error] {
	return func(yield func(api.Message, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		r := &reader{js: js, since: opts.Since, look: cmp.Or(opts.Look, 5*time.Second)}
		err := r.open(opts)
		defer r.close()
		for more := err == nil; more && ctx.Err() == nil; {
			more, err = r.pass(ctx, yield)
			if err != nil && opts.Follow && api.Temporary(err) { // the server may come back
				more, err = true, nil
			}
			if more = more && err == nil && opts.Follow; more {
				err = r.wait(ctx)
				more = err == nil
			}
		}
		if err != nil && ctx.Err() == nil {
			yield(api.Message{}, err)
		}
	}
}

// A reader reads some streams repeatedly, each time what was stored since.
type reader struct {
	js    natsjs.JetStream
	since time.Time
	look  time.Duration // see [Options]
	parts []*part
	subs  []*nats.Subscription
	heard chan *nats.Msg
	ended chan nats.Status // the connection was closed

	reconnects uint64
}

// part is one stream, read by one filter.
type part struct {
	stream, filter string
	after          uint64    // the last sequence that was read
	time           time.Time // of that message
	doubt          bool      // the stream may have been recreated: the connection was lost, or nothing new was found
}

// open finds out what to read, and with Follow subscribes to it.
func (r *reader) open(opts Options) error {
	r.heard = make(chan *nats.Msg, 64)
	r.ended = r.js.Conn().StatusChanged(nats.CLOSED)
	r.reconnects = r.js.Conn().Stats().Reconnects
	for stream, subjects := range opts.Filters {
		for _, filter := range subjects {
			r.parts = append(r.parts, &part{stream: stream, filter: filter})
			if !opts.Follow {
				continue
			}
			sub, err := r.js.Conn().ChanSubscribe(filter, r.heard)
			if err != nil {
				return fmt.Errorf("replay: listen on %s: %w", filter, err)
			}
			r.subs = append(r.subs, sub)
		}
	}
	return nil
}

func (r *reader) close() {
	r.js.Conn().RemoveStatusListener(r.ended)
	for _, sub := range r.subs {
		_ = sub.Unsubscribe() // the connection may be gone
	}
}

// wait waits until a message arrives or it is time to look. It fails if ctx ends, or the
// connection is closed for good.
func (r *reader) wait(ctx context.Context) error {
	timer := time.NewTimer(r.look)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	case <-r.ended:
	case <-r.heard:
		for len(r.heard) > 0 {
			<-r.heard
		}
		// The message came straight from its publisher, and may be stored a moment later.
		timer.Reset(followSoon)
		<-timer.C
	}
	if r.js.Conn().IsClosed() {
		return fmt.Errorf("replay: %w", nats.ErrConnectionClosed)
	}
	return nil
}

// followSoon is how long the stream usually takes to store a published message. A message
// that takes longer is read with the next one, or at the next look.
const followSoon = 20 * time.Millisecond

// rewind goes back in a stream that was recreated, or restored from an older copy: there a message
// that is newer than the last one read has a sequence that was already read. A stream that still has
// the last one read is the same: its clock may have been set back, so that an earlier message of it
// is newer.
func (r *reader) rewind(ctx context.Context, p *part) error {
	if !p.doubt {
		return nil
	}
	known, err := api.Direct(ctx, r.js, p.stream, map[string]any{"seq": p.after, "next_by_subj": p.filter, "batch": 1})
	if err != nil {
		return err
	}
	if len(known.Messages) > 0 && known.Messages[0].Seq == p.after && known.Messages[0].Time.Equal(p.time) {
		p.doubt = false
		return nil
	}
	batch, err := api.Direct(ctx, r.js, p.stream, map[string]any{"start_time": p.time.Add(1).UTC(), "next_by_subj": p.filter, "batch": 1})
	if err != nil || len(batch.Messages) == 0 {
		return err // it may have been made anew, and be empty
	}
	p.after = min(p.after, batch.Messages[0].Seq-1)
	p.doubt = false
	return nil
}

// pass yields the stored messages that were not yielded before, of all parts in the order
// of time. more reports whether the caller wants more.
func (r *reader) pass(ctx context.Context, yield func(api.Message, error) bool) (more bool, err error) {
	type head struct {
		part *part
		msg  api.Message
		next func() (api.Message, error, bool)
	}
	var heads []*head
	advance := func(h *head) (bool, error) {
		msg, err, ok := h.next()
		h.msg = msg
		return ok, err
	}
	reconnects := r.js.Conn().Stats().Reconnects
	for _, p := range r.parts {
		p.doubt = p.after > 0 && (p.doubt || reconnects != r.reconnects)
	}
	r.reconnects = reconnects
	for _, p := range r.parts {
		if err := r.rewind(ctx, p); err != nil {
			return false, fmt.Errorf("replay: %w", err)
		}
		next, stop := iter.Pull2(api.WithoutStrays(api.ScanSince(ctx, r.js, p.stream, p.filter, p.after+1, r.since)))
		defer stop()
		h := &head{part: p, next: next}
		ok, err := advance(h)
		if err != nil {
			return false, fmt.Errorf("replay: %w", err)
		}
		if ok {
			heads = append(heads, h)
		} else {
			p.doubt = true
		}
	}
	for len(heads) > 0 {
		first := 0
		for i, h := range heads {
			if h.msg.Time.Before(heads[first].msg.Time) {
				first = i
			}
		}
		h := heads[first]
		h.part.after, h.part.time = h.msg.Seq, h.msg.Time
		if !yield(h.msg, nil) {
			return false, nil
		}
		ok, err := advance(h)
		if err != nil {
			return false, fmt.Errorf("replay: %w", err)
		}
		if !ok {
			heads = slices.Delete(heads, first, first+1)
		}
	}
	return true, nil
}
