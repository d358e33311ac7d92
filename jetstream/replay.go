package jetstream

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// ReplayOptions say what to replay.
type ReplayOptions struct {
	Map subject.Map

	// Since is the time of the first message. Zero: everything there is.
	Since time.Time

	// Subjects are full NATS patterns, with the prefix. Nil: all broadcasts and
	// all people's inboxes. A pattern that no stream of the mesh captures is an
	// error: nothing of it was ever stored.
	Subjects []string

	// Follow goes on with new messages when the stored ones are at an end,
	// without a gap and without a message twice.
	Follow bool
}

// A Message is what was stored.
type Message struct {
	Subject string
	Header  nats.Header // nil if there are none
	Data    []byte
	Time    time.Time // when the server stored it
	Stream  string
	Seq     uint64
}

// replayed are the streams that Replay reads.
var replayed = []string{StreamBus, StreamHuman}

// Replay reads the stored broadcasts and inboxes in the order of time. The
// sequence ends at the last message that was stored when it was reached, or
// with ctx; after an error it yields nothing more. Messages of one stream keep
// their order. Following, it listens for what is published, and reads it from the
// stream: any replica may answer, so a message may come a moment late.
//
// It makes no consumer, and needs permission for $JS.API.DIRECT.GET of its streams,
// and to subscribe to what it follows.
func Replay(ctx context.Context, js natsjs.JetStream, opts ReplayOptions) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		r := &replay{js: js, since: opts.Since}
		err := r.open(opts)
		defer r.close()
		for more := err == nil; more && ctx.Err() == nil; {
			more, err = r.pass(ctx, yield)
			if err != nil && opts.Follow && passing(err) { // the server may come back
				more, err = true, nil
			}
			more = more && err == nil && opts.Follow && r.wait(ctx)
		}
		if err != nil && ctx.Err() == nil {
			yield(Message{}, err)
		}
	}
}

// filters are the patterns to read from each stream.
func (o ReplayOptions) filters() (map[string][]string, error) {
	filters := map[string][]string{}
	captured := make([]bool, len(o.Subjects))
	for _, spec := range Topology() {
		if !slices.Contains(replayed, spec.Name) {
			continue
		}
		for _, s := range spec.subjects(o.Map) {
			if o.Subjects == nil {
				filters[spec.FullName(o.Map)] = append(filters[spec.FullName(o.Map)], s)
			}
			for i, want := range o.Subjects {
				if !overlap(s, want) {
					continue
				}
				captured[i] = true
				if covers(want, s) {
					want = s
				}
				name := spec.FullName(o.Map)
				filters[name] = union(filters[name], []string{want})
			}
		}
	}
	if i := slices.Index(captured, false); i >= 0 {
		return nil, fmt.Errorf("replay %s: nothing of it is stored; stored are %s and %s", o.Subjects[i], o.Map.AllBus(), o.Map.AllHuman())
	}
	return filters, nil
}

// A replay reads some streams again and again, each time what has come since.
type replay struct {
	js    natsjs.JetStream
	since time.Time
	parts []*replayPart
	subs  []*nats.Subscription
	heard chan *nats.Msg
}

// replayPart is what is read of one stream by one filter.
type replayPart struct {
	stream, filter string
	after          uint64 // all up to this sequence was read
}

// open finds what to read, and listens for it where it is to be followed.
func (r *replay) open(opts ReplayOptions) error {
	filters, err := opts.filters()
	if err != nil {
		return err
	}
	r.heard = make(chan *nats.Msg, 64)
	for stream, subjects := range filters {
		for _, filter := range subjects {
			r.parts = append(r.parts, &replayPart{stream: stream, filter: filter})
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

func (r *replay) close() {
	for _, sub := range r.subs {
		_ = sub.Unsubscribe() // the connection may be gone
	}
}

// followLook is the time between two looks at the streams while nothing is heard.
const followLook = 5 * time.Second

// wait waits until something is heard, or it is time for a look, and reports whether
// to go on.
func (r *replay) wait(ctx context.Context) bool {
	timer := time.NewTimer(followLook)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-r.heard:
		for len(r.heard) > 0 {
			<-r.heard
		}
		// It was heard from its publisher, and may be stored a moment later.
		timer.Reset(followSoon)
		<-timer.C
	}
	return !r.js.Conn().IsClosed()
}

// followSoon is how long a message may take from its publisher into the stream. What
// takes longer is found with the next one, or the next look.
const followSoon = 20 * time.Millisecond

// pass yields what is stored and was not yielded before, of all parts in the order of
// time. more says whether the caller wants more.
func (r *replay) pass(ctx context.Context, yield func(Message, error) bool) (more bool, err error) {
	type head struct {
		part *replayPart
		msg  Message
		next func() (Message, error, bool)
	}
	var heads []*head
	advance := func(h *head) (bool, error) {
		msg, err, ok := h.next()
		h.msg = msg
		return ok, err
	}
	for _, p := range r.parts {
		next, stop := iter.Pull2(withoutStrays(scanSince(ctx, r.js, p.stream, p.filter, p.after+1, r.since)))
		defer stop()
		h := &head{part: p, next: next}
		ok, err := advance(h)
		if err != nil {
			return false, fmt.Errorf("replay: %w", err)
		}
		if ok {
			heads = append(heads, h)
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
		h.part.after = h.msg.Seq
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
