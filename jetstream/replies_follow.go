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

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A Follower hears the replies to one task as they are published. It is made
// before the task is submitted, so that nothing can be missed:
//
//	f, err := replies.Open(entity, id)
//	_, err = queue.Submit(ctx, task)
//	for msg, err := range f.Messages(ctx, jetstream.FollowOptions{Fresh: true}) { … }
type Follower struct {
	r       *Replies
	subject string
	in      chan *nats.Msg
	sub     *nats.Subscription
	status  chan nats.Status
	close   func()
	silent  bool // closed, and nothing comes any more

	after      uint64 // stored up to here all has been yielded
	number     int    // HeaderSeq of the last one that was yielded; 0: none had one
	middle     bool   // it begins in the middle: the first one may have any number
	seen       recent
	unseen     int      // yielded since the stream was looked at
	failed     bool     // it could not be looked at
	nameless   [][]byte // read from it just now that have no id
	reconnects uint64
	dropped    int
}

// followBuffer is how many replies may wait for the caller before they have to
// be read from the stream.
const followBuffer = 512

// Open begins to listen for the replies to a task. The follower must be closed,
// unless its Messages are ranged over, which does that.
func (r *Replies) Open(entity, taskID string) (*Follower, error) {
	subj, err := r.m.Reply(entity, taskID)
	if err != nil {
		return nil, fmt.Errorf("follow replies: %w", err)
	}
	nc := r.js.Conn()
	f := &Follower{r: r, subject: subj, in: followBuffers.Get().(chan *nats.Msg), reconnects: nc.Stats().Reconnects}
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

// followBuffers are those of followers that have ended: each is larger than all
// else that a follower needs.
var followBuffers = sync.Pool{New: func() any { return make(chan *nats.Msg, followBuffer) }}

// end closes the follower for the one who reads from it.
func (f *Follower) end() {
	f.close()
	if !f.silent {
		return // something may still be put into it
	}
	for len(f.in) > 0 {
		<-f.in
	}
	followBuffers.Put(f.in)
	f.in = nil
}

// Close ends the follower. Calling it again does nothing.
func (f *Follower) Close() { f.close() }

// The stream is looked at when nothing has come for a while: a reply can be
// lost between two servers without either end noticing.
const (
	followQuiet   = time.Second
	followQuietst = 15 * time.Second
)

// Messages yields the replies in their order, each once, and closes the
// follower when it ends: with ctx, or when the caller has seen enough. It may be
// ranged over once.
//
// A reply usually comes straight from its publisher, as fast as any NATS
// message; then its Seq and Time are zero. The server may not have stored it
// yet. After a lost connection, a reply missed by its number ([HeaderSeq]), or
// some silence, the stream is read; what comes from there has Seq and Time. Who may
// read last replies only gets that one from there: what a task has streamed before it
// and was missed is lost then.
//
// A reply of others that has no Nats-Msg-Id is yielded from the stream only.
//
// It yields an error and ends if the stream cannot be read for a reason that
// does not pass, or if the connection is closed.
func (f *Follower) Messages(ctx context.Context, opts FollowOptions) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		defer f.end()
		f.after, f.middle = opts.After, opts.After > 0
		quiet, look := followQuiet, !opts.Fresh
		timer := time.NewTimer(quiet)
		defer timer.Stop()
		for ctx.Err() == nil {
			if look {
				look = false
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
					yield(Message{}, fmt.Errorf("follow replies on %s: %w", f.subject, nats.ErrConnectionClosed))
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

// live takes a reply that came from its publisher. It reports whether the
// caller wants more.
func (f *Follower) live(ctx context.Context, msg *nats.Msg, yield func(Message, error) bool) bool {
	if !Published(msg, f.subject) {
		return true
	}
	id, number := identity(msg.Header)
	known := func() bool { return f.known(msg.Header, id, number) }
	if f.missed() || f.unseen >= recentIDs/2 {
		// Something may be missing before it; or soon it could not be told any
		// more from its stored form.
		if !f.catchUp(ctx, yield) {
			return false
		}
	}
	for try := range gapTries {
		if known() {
			return true
		}
		if id != "" && (number == 0 || number <= f.number+1 || f.number == 0 && f.middle) {
			break
		}
		// One is missing, or it has no id by which it would be known later. The
		// stream has it, or is about to.
		if try > 0 && !pause(ctx, gapWait<<try) {
			return false
		}
		f.nameless = nil
		if !f.catchUp(ctx, yield) {
			return false
		}
		if id == "" && slices.ContainsFunc(f.nameless, func(data []byte) bool { return bytes.Equal(data, msg.Data) }) {
			return true
		}
	}
	if id == "" || known() {
		return true // the stream will have it in time
	}
	f.note(id, number)
	f.unseen++
	return yield(Message{Subject: msg.Subject, Header: msg.Header, Data: msg.Data, Stream: f.r.name()}, nil)
}

// A reply whose predecessor is not there is held back for some 300 ms; then
// the predecessor was never stored.
const (
	gapTries = 6
	gapWait  = 5 * time.Millisecond
)

// missed reports whether the connection may have lost replies since the last
// time.
func (f *Follower) missed() bool {
	reconnects := f.r.js.Conn().Stats().Reconnects
	dropped, _ := f.sub.Dropped()
	missed := reconnects != f.reconnects || dropped != f.dropped
	f.reconnects, f.dropped = reconnects, dropped
	return missed
}

// catchUp yields what is stored and was not yielded. It reports whether the
// caller wants more, and there is no reason to give up.
func (f *Follower) catchUp(ctx context.Context, yield func(Message, error) bool) bool {
	f.missed()
	f.unseen, f.failed = 0, false
	for msg, err := range f.r.behind(ctx, f.subject, f.after) {
		switch {
		case errors.Is(err, ErrDenied), errors.Is(err, ErrNotFound), errors.Is(err, errNoDirect), errors.Is(err, nats.ErrConnectionClosed):
			yield(Message{}, fmt.Errorf("follow replies: %w", err))
			return false
		case err != nil:
			f.failed = true // it passes
			return true
		}
		f.after = msg.Seq
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
	}
	return true
}

func identity(h nats.Header) (id string, number int) {
	number, _ = strconv.Atoi(h.Get(HeaderSeq))
	return h.Get(natsjs.MsgIDHeader), max(number, 0)
}

// known reports whether a reply was yielded before.
func (f *Follower) known(h nats.Header, id string, number int) bool {
	return f.seen.has(id) || number > 0 && number <= f.number && h.Get(HeaderStreamCount) == ""
}

func (f *Follower) note(id string, number int) {
	f.number = max(f.number, number)
	f.seen.add(id)
}

// recent remembers the last ids that were yielded, for replies that have no
// number.
type recent struct {
	ids  map[string]bool
	ring []string
	at   int
}

// recentIDs is more than may be yielded between two looks at the stream.
const recentIDs = 4096

func (r *recent) has(id string) bool { return id != "" && r.ids[id] }

func (r *recent) add(id string) {
	if id == "" {
		return
	}
	if r.ids == nil {
		r.ids = map[string]bool{}
	}
	r.ids[id] = true
	if len(r.ring) < recentIDs {
		r.ring = append(r.ring, id)
		return
	}
	delete(r.ids, r.ring[r.at])
	r.ring[r.at] = id
	r.at = (r.at + 1) % recentIDs
}

// pause waits, and reports whether ctx still lasts.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
