package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/jetstream/internal/recent"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A Follower receives the replies to one task as they are published. Open it before the
// task is submitted, so that no reply is missed:
//
//	f, err := replies.Open(entity, id)
//	_, err = queue.Submit(ctx, task)
//	for msg, err := range f.Messages(ctx, jetstream.FollowOptions{Fresh: true}) { … }
type Follower struct {
	r      *Replies
	at     place
	in     chan *nats.Msg
	sub    *nats.Subscription
	status chan nats.Status
	close  func()
	silent bool // closed, and no more messages can arrive

	after      uint64    // all stored replies up to this sequence were yielded
	read       time.Time // of the one with that sequence
	number     int       // the highest HeaderSeq that was yielded; 0: none
	middle     bool      // it started after some replies: the first one may have any number
	old        func(nats.Header) bool
	seen       recent.IDs // of the last replies that were yielded, for those without a number
	unseen     int        // replies yielded since the stream was read
	failed     bool       // the stream could not be read
	ahead      int        // replies read from the stream since the buffer was empty
	skipped    bool       // replies were dropped that the stream has, or will have soon
	nameless   [][]byte   // bodies without an id that were just read from the stream
	reconnects uint64
	dropped    int
}

// followBuffer is how many replies are buffered for the caller. Further ones are dropped
// and read from the stream later.
const followBuffer = 512

// Open subscribes to the replies to a task. The follower must be closed, unless its
// Messages are ranged over, which closes it.
func (r *Replies) Open(entity, taskID string) (*Follower, error) {
	at, err := r.place(entity, taskID)
	if err != nil {
		return nil, fmt.Errorf("follow replies: %w", err)
	}
	nc, subj := r.js.Conn(), at.subject
	f := &Follower{r: r, at: at, in: followBuffers.Get().(chan *nats.Msg), reconnects: nc.Stats().Reconnects}
	if f.sub, err = nc.ChanSubscribe(subj, f.in); err != nil {
		return nil, fmt.Errorf("follow replies on %s: %w", subj, err)
	}
	f.status = nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	f.close = sync.OnceFunc(func() {
		nc.RemoveStatusListener(f.status)
		f.silent = f.sub.Unsubscribe() == nil
	})
	return f, nil
}

// followBuffers reuses the buffers of followers that have ended: a buffer is the largest
// part of a follower.
var followBuffers = sync.Pool{New: func() any { return make(chan *nats.Msg, followBuffer) }}

// end closes the follower at the end of Messages, and reuses its buffer.
func (f *Follower) end() {
	f.close()
	if !f.silent {
		return // a message may still be put into the buffer
	}
	for len(f.in) > 0 {
		<-f.in
	}
	followBuffers.Put(f.in)
	f.in = nil
}

// Close closes the follower. A second call does nothing.
func (f *Follower) Close() { f.close() }

// How long no reply may arrive before the stream is read, at first and at most: a reply
// can be lost between two servers without either end noticing.
const (
	followQuiet   = time.Second
	followQuietst = 15 * time.Second
)

// Messages yields the replies in their order, each once, until ctx ends or the caller
// stops; then it closes the follower. It may be ranged over once.
//
// A reply usually comes straight from its publisher, as fast as any NATS message. Then
// its Seq and Time are zero, and the server may not have stored it yet. After a lost
// connection, a gap in the numbers ([HeaderSeq]), or some silence, the replies are read
// from the stream and have Seq and Time. A user who may read only the last reply gets
// only that one from the stream, so stream envelopes that were missed before it are lost.
//
// A reply without a Nats-Msg-Id, which other programs may publish, is yielded only when
// it is read from the stream.
//
// If the stream cannot be read for a permanent reason, or the connection is closed,
// Messages yields an error and ends.
func (f *Follower) Messages(ctx context.Context, opts FollowOptions) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		defer f.end()
		f.after, f.middle, f.old = opts.After, opts.After > 0 || opts.Old != nil, opts.Old
		quiet, look := followQuiet, !opts.Fresh
		timer := time.NewTimer(quiet)
		defer timer.Stop()
		for ctx.Err() == nil {
			if look || f.skipped {
				look = false
				if f.skipped && !pause.For(ctx, gapWait) { // until the skipped replies are stored
					return
				}
				if !f.catchUp(ctx, yield) {
					return
				}
			}
			if f.failed {
				f.failed, quiet = false, followQuiet
				timer.Reset(quiet)
			}
			select {
			case <-ctx.Done():
				return
			case msg := <-f.in:
				if !f.live(ctx, msg, yield) {
					return
				}
				quiet = followQuiet
				timer.Reset(quiet)
			case s, ok := <-f.status:
				if !ok { // closed by the caller
					return
				}
				if s == nats.CLOSED {
					yield(Message{}, fmt.Errorf("follow replies on %s: %w", f.at.subject, nats.ErrConnectionClosed))
					return
				}
				look = true
			case <-timer.C:
				look = true
				quiet = min(2*quiet, followQuietst)
				timer.Reset(quiet)
			}
		}
	}
}

// live handles a reply that came straight from its publisher. It reports whether the
// caller wants more.
func (f *Follower) live(ctx context.Context, msg *nats.Msg, yield func(Message, error) bool) bool {
	if !Published(msg, f.at.subject) || f.old != nil && f.old(msg.Header) {
		return true
	}
	if len(f.in) == 0 {
		f.ahead = 0
	}
	id, number := identity(msg.Header)
	known := func() bool { return f.known(msg.Header, id, number) }
	if f.missed() || f.unseen >= recent.Max/2 {
		// Replies may be missing before this one; or so many ids were yielded that seen
		// would soon forget some of them.
		if !f.catchUp(ctx, yield) {
			return false
		}
		if f.skipped {
			return true
		}
	}
	for try := range gapTries {
		if known() {
			return true
		}
		if id != "" && (number == 0 || number <= f.number+1 || f.number == 0 && f.middle) {
			break
		}
		// A reply before it is missing, or it has no id to recognise it by later. The
		// stream has it, or will have it soon.
		if try > 0 && !pause.For(ctx, gapWait<<try) {
			return false
		}
		f.nameless = nil
		if !f.catchUp(ctx, yield) {
			return false
		}
		if f.skipped {
			return true
		}
		if id == "" && slices.ContainsFunc(f.nameless, func(data []byte) bool { return bytes.Equal(data, msg.Data) }) {
			return true
		}
	}
	if id == "" || known() {
		return true // it will be read from the stream
	}
	f.note(id, number)
	f.unseen++
	return yield(Message{Subject: msg.Subject, Header: msg.Header, Data: msg.Data, Stream: f.r.name()}, nil)
}

// A reply whose predecessor is missing is held back for some 300 ms. If the predecessor
// is not stored by then, it never will be.
const (
	gapTries = 6
	gapWait  = 5 * time.Millisecond
)

// missed reports whether the connection may have lost replies since the last call.
func (f *Follower) missed() bool {
	reconnects := f.r.js.Conn().Stats().Reconnects
	dropped, _ := f.sub.Dropped()
	missed := reconnects != f.reconnects || dropped != f.dropped
	f.reconnects, f.dropped = reconnects, dropped
	return missed
}

// catchUp yields the stored replies that were not yielded yet. It returns false if the
// caller stops, or if the stream cannot be read for a permanent reason.
func (f *Follower) catchUp(ctx context.Context, yield func(Message, error) bool) bool {
	f.missed()
	f.unseen, f.failed, f.skipped = 0, false, false
	for msg, err := range f.r.behind(ctx, f.at, f.after, f.read, f.old) {
		switch {
		case api.Denied(err), errors.Is(err, ErrNotFound), errors.Is(err, api.ErrNoDirect), errors.Is(err, nats.ErrConnectionClosed):
			yield(Message{}, fmt.Errorf("follow replies: %w", err))
			return false
		case err != nil:
			f.failed = true // temporary
			return true
		}
		f.after, f.read = msg.Seq, msg.Time
		if f.old != nil && f.old(msg.Header) {
			continue
		}
		id, number := identity(msg.Header)
		if f.known(msg.Header, id, number) {
			continue
		}
		f.note(id, number)
		if id == "" {
			f.nameless = append(f.nameless, msg.Data)
		}
		if !yield(msg, nil) {
			return false
		}
		if f.ahead++; f.ahead >= recent.Max/2 {
			f.skip()
		}
	}
	return true
}

// skip drops the replies that have arrived meanwhile, before seen forgets which of them were
// read from the stream. The stream has them, or will have them soon, so the follower reads it
// again; it also reads the current reply from there.
func (f *Follower) skip() {
	f.skipped, f.ahead = true, 0
	for len(f.in) > 0 {
		<-f.in
	}
}

func identity(h nats.Header) (id string, number int) {
	number, _ = strconv.Atoi(h.Get(HeaderSeq))
	return h.Get(natsjs.MsgIDHeader), max(number, 0)
}

// known reports whether a reply was yielded before.
func (f *Follower) known(h nats.Header, id string, number int) bool {
	return f.seen.Has(id) || number > 0 && number <= f.number && h.Get(HeaderStreamCount) == ""
}

func (f *Follower) note(id string, number int) {
	f.number = max(f.number, number)
	f.seen.Add(id)
}
