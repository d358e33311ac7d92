package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
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
// their order.
//
// It reads through ephemeral consumers, which survive reconnects, and needs
// permission for $JS.API.STREAM.INFO, $JS.API.CONSUMER.CREATE and
// $JS.API.CONSUMER.MSG.NEXT on its streams.
func Replay(ctx context.Context, js natsjs.JetStream, opts ReplayOptions) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var readers sync.WaitGroup
		defer readers.Wait()
		defer cancel()
		fail := func(err error) {
			if ctx.Err() == nil {
				yield(Message{}, err)
			}
		}

		filters, err := opts.filters()
		if err != nil {
			fail(err)
			return
		}
		live := make(chan item)
		var history []*reader
		for name, subjects := range filters {
			cfg := natsjs.OrderedConsumerConfig{FilterSubjects: subjects, DeliverPolicy: natsjs.DeliverAllPolicy, MaxResetAttempts: -1}
			if !opts.Since.IsZero() {
				cfg.DeliverPolicy, cfg.OptStartTime = natsjs.DeliverByStartTimePolicy, &opts.Since
			}
			r, err := openReader(ctx, js, name, cfg)
			if err != nil {
				fail(fmt.Errorf("replay: %w", err))
				return
			}
			defer r.iter.Stop()
			history = append(history, r)
		}
		for _, r := range history {
			readers.Go(func() { r.run(ctx, opts.Follow, live) })
		}
		if ok, err := merge(ctx, history, yield); !ok || err != nil {
			if err != nil {
				fail(err)
			}
			return
		}
		for opts.Follow {
			select {
			case <-ctx.Done():
				return
			case it := <-live:
				if it.err != nil {
					fail(it.err)
					return
				}
				if !yield(it.msg, nil) {
					return
				}
			}
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

type item struct {
	msg Message
	err error
}

// A reader reads one stream. Its history channel is closed at the end of what
// was stored; then it goes on, if it is to follow, on the channel of all.
type reader struct {
	name    string
	nc      *nats.Conn
	cons    natsjs.Consumer
	iter    natsjs.MessagesContext
	empty   bool
	history chan item
	head    item // the next one to merge
}

func openReader(ctx context.Context, js natsjs.JetStream, name string, cfg natsjs.OrderedConsumerConfig) (*reader, error) {
	cfg.InactiveThreshold = readerIdle
	cons, err := js.OrderedConsumer(ctx, name, cfg)
	if err != nil {
		return nil, explain(js.Conn(), err, "read %s", name)
	}
	r := &reader{name: name, nc: js.Conn(), cons: cons, history: make(chan item)}
	if info := cons.CachedInfo(); info != nil {
		r.empty = info.NumPending == 0
	}
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

func (r *reader) run(ctx context.Context, follow bool, live chan<- item) {
	stored, out := r.history, (chan<- item)(r.history)
	end := func() { // of what was stored
		close(stored)
		stored, out = nil, live
	}
	if r.empty {
		end()
	}
	for stored != nil || follow {
		it := item{}
		last := false
		msg, err := r.next(ctx, stored != nil)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			it.err = explain(r.nc, err, "replay %s", r.name)
		case msg == nil: // the rest of what was stored went by its age
			end()
			continue
		default:
			meta, err := msg.Metadata()
			if err != nil {
				it.err = fmt.Errorf("replay %s: %w", r.name, err)
				break
			}
			last = meta.NumPending == 0
			it.msg = Message{Subject: msg.Subject(), Header: msg.Headers(), Data: msg.Data(), Time: meta.Timestamp, Stream: meta.Stream, Seq: meta.Sequence.Stream}
		}
		select {
		case out <- it:
		case <-ctx.Done():
			return
		}
		if it.err != nil {
			return
		}
		if last && stored != nil {
			end()
		}
	}
}

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

// merge yields the stored messages of all readers by time. It reports whether
// the caller wants more.
func merge(ctx context.Context, readers []*reader, yield func(Message, error) bool) (bool, error) {
	// Readers whose history is at an end may hold a live message meanwhile;
	// nobody takes it until all of them are.
	var open []*reader
	advance := func(r *reader) (bool, error) {
		select {
		case it, ok := <-r.history:
			r.head = it
			return ok, it.err
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	for _, r := range readers {
		ok, err := advance(r)
		if err != nil {
			return false, err
		}
		if ok {
			open = append(open, r)
		}
	}
	for len(open) > 0 {
		first := 0
		for i, r := range open {
			if r.head.msg.Time.Before(open[first].head.msg.Time) {
				first = i
			}
		}
		if !yield(open[first].head.msg, nil) {
			return false, nil
		}
		ok, err := advance(open[first])
		if err != nil {
			return false, err
		}
		if !ok {
			open = slices.Delete(open, first, first+1)
		}
	}
	return true, nil
}
