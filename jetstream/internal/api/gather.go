package api

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"
	"weak"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/pause"
)

// Gather returns js with a PublishMsg that is cheaper when many goroutines call it at once:
// see jetstream.Gather.
func Gather(js natsjs.JetStream) natsjs.JetStream {
	if g, ok := js.(*gathered); ok {
		return g
	}
	return &gathered{js, gathererOf(js.Conn())}
}

// gathered is a JetStream that publishes through the queue of its connection.
type gathered struct {
	natsjs.JetStream
	*gatherer
}

// gatherer publishes through a queue: the first sender yields to other goroutines, and
// then publishes what all of them have queued. Without it, the connection would flush,
// one system call, for every message, because each sender waits for its answer.
type gatherer struct {
	conn *nats.Conn

	mu      sync.Mutex
	inbox   string // with the final dot; "" before the first message
	tokens  *rand.ChaCha8
	waiting map[string]chan<- published // by reply subject
	queue   []*nats.Msg

	publishing sync.Mutex // held while queued messages are published
}

// gatherers holds the gatherer of each connection that has one, because its subscription and its
// goroutine last as long as the connection. It keeps neither of them alive.
var (
	gatherersMu sync.Mutex
	gatherers   = map[weak.Pointer[nats.Conn]]weak.Pointer[gatherer]{}
)

func gathererOf(conn *nats.Conn) *gatherer {
	key := weak.Make(conn)
	gatherersMu.Lock()
	defer gatherersMu.Unlock()
	known, there := gatherers[key]
	if g := known.Value(); g != nil {
		return g
	}
	if !there {
		runtime.AddCleanup(conn, forgetGatherer, key)
	}
	g := &gatherer{conn: conn, waiting: map[string]chan<- published{}}
	gatherers[key] = weak.Make(g)
	return g
}

func forgetGatherer(key weak.Pointer[nats.Conn]) {
	gatherersMu.Lock()
	defer gatherersMu.Unlock()
	delete(gatherers, key)
}

// published is the outcome of a message.
type published struct {
	answer *nats.Msg
	err    error
}

// How often, and after what pause, a message is published again when no stream answered:
// the stream may be electing a leader. nats.go does the same.
const (
	publishRetries   = 2
	publishRetryWait = 250 * time.Millisecond
)

// PublishMsg publishes a message and waits up to 5 s for its acknowledgement.
func (g *gathered) PublishMsg(ctx context.Context, m *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	if len(opts) > 0 {
		return g.JetStream.PublishMsg(ctx, m, opts...)
	}
	for try := 0; ; try++ {
		answer, err := g.exchange(ctx, m, RequestTimeout)
		if err == nil && len(answer.Data) == 0 && answer.Header.Get("Status") == "503" {
			err = natsjs.ErrNoStreamResponse
		}
		if err == nil {
			return ReadAck(answer.Data)
		}
		if !errors.Is(err, natsjs.ErrNoStreamResponse) || try == publishRetries {
			return nil, err
		}
		if !pause.For(ctx, publishRetryWait) {
			return nil, natsjs.ErrNoStreamResponse
		}
	}
}

// ExchangeWithin sends a request and waits for its answer, at most until a timeout. With a js of
// [Gather] it costs less than [Exchange], but it does not fail at once with an error that says
// that the subject is not permitted.
func ExchangeWithin(ctx context.Context, js natsjs.JetStream, msg *nats.Msg, timeout time.Duration) (*nats.Msg, error) {
	if g, ok := js.(*gathered); ok {
		return g.exchange(ctx, msg, timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return Exchange(ctx, js.Conn(), msg)
}

// exchange publishes a message and waits for its answer, at most until a timeout. A timer that
// is used again costs less than a context with a deadline.
func (g *gatherer) exchange(ctx context.Context, m *nats.Msg, timeout time.Duration) (*nats.Msg, error) {
	s := slips.Get().(*slip)
	s.msg = nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
	first, company, err := g.enqueue(&s.msg, s.done)
	if err != nil {
		return nil, err
	}
	if first {
		if company {
			runtime.Gosched()
		}
		g.flush()
	}
	timer := timers.Get().(*time.Timer)
	timer.Reset(timeout)
	defer func() {
		timer.Stop()
		timers.Put(timer)
	}()
	select {
	case p := <-s.done:
		if p.err == nil { // it was published, and nothing refers to it any more
			s.msg = nats.Msg{}
			slips.Put(s)
			return p.answer, nil
		}
		err = p.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = context.DeadlineExceeded
	}
	g.leave(&s.msg)
	return nil, err
}

// A slip is a message that is under way, and the channel by which its answer comes.
type slip struct {
	msg  nats.Msg
	done chan published
}

var slips = sync.Pool{New: func() any { return &slip{done: make(chan published, 1)} }}

// timers pools timers that do not run.
var timers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}}

// leave withdraws a message whose sender has stopped waiting or got an error. When it returns, the
// message's bytes, which belong to the caller, are no longer read.
func (g *gatherer) leave(m *nats.Msg) {
	g.take(m.Reply)
	g.mu.Lock()
	n := len(g.queue)
	g.queue = slices.DeleteFunc(g.queue, func(q *nats.Msg) bool { return q == m })
	published := len(g.queue) == n
	g.mu.Unlock()
	if published { // or it is being published now
		g.publishing.Lock()
		defer g.publishing.Unlock()
	}
}

// gatherFrom is how many messages must be under way before a sender yields to other
// goroutines. With fewer, no other sender is likely to join, and yielding would only cost
// a pass through the scheduler and a network poll.
const gatherFrom = 4

// enqueue reports whether the message is the first in the queue, and whether others are
// likely to join it.
func (g *gatherer) enqueue(m *nats.Msg, done chan<- published) (first, company bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inbox == "" {
		inbox := g.conn.NewInbox() + "."
		if _, err := g.conn.Subscribe(inbox+"*", g.answered); err != nil {
			return false, false, err
		}
		var seed [32]byte
		_, _ = crand.Read(seed[:]) // never fails
		g.inbox, g.tokens = inbox, rand.NewChaCha8(seed)
		go g.watch(g.conn.StatusChanged(nats.RECONNECTING, nats.CLOSED))
	}
	// A subscriber of a stream's subject reads the reply subjects of the messages that are published
	// there. If it could guess the next one, it could redirect the acknowledgement of another message
	// to it.
	m.Reply = g.inbox + strconv.FormatUint(g.tokens.Uint64(), 36)
	g.waiting[m.Reply] = done
	g.queue = append(g.queue, m)
	return len(g.queue) == 1, len(g.waiting) >= gatherFrom, nil
}

// flush publishes the queued messages.
func (g *gatherer) flush() {
	g.publishing.Lock()
	defer g.publishing.Unlock()
	g.mu.Lock()
	batch := g.queue
	g.queue = nil
	g.mu.Unlock()
	for _, m := range batch {
		if err := g.conn.PublishMsg(m); err != nil {
			g.resolve(m.Reply, published{err: err})
		}
	}
}

// watch fails the messages under way whenever the connection is lost. It ends with the
// connection.
func (g *gatherer) watch(status <-chan nats.Status) {
	for now := range status {
		g.mu.Lock()
		lost := g.waiting
		g.waiting = map[string]chan<- published{}
		g.mu.Unlock()
		err := nats.ErrDisconnected
		if now == nats.CLOSED {
			err = nats.ErrConnectionClosed
		}
		for _, done := range lost {
			done <- published{err: err}
		}
		if now == nats.CLOSED {
			return
		}
	}
}

func (g *gatherer) answered(m *nats.Msg) { g.resolve(m.Subject, published{answer: m}) }

func (g *gatherer) resolve(reply string, p published) {
	if done := g.take(reply); done != nil {
		done <- p
	}
}

func (g *gatherer) take(reply string) chan<- published {
	g.mu.Lock()
	defer g.mu.Unlock()
	done := g.waiting[reply]
	delete(g.waiting, reply)
	return done
}

// ReadAck decodes a stream's acknowledgement. Nearly all have this form:
// {"stream":"KV_aee_state","seq":7}; older servers write a space before "seq".
func ReadAck(data []byte) (*natsjs.PubAck, error) {
	if rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`)); ok {
		name, rest, _ := bytes.Cut(rest, []byte(`",`))
		rest, ok = bytes.CutPrefix(bytes.TrimPrefix(rest, []byte{' '}), []byte(`"seq":`))
		if n := len(rest) - 1; ok && n > 0 && rest[n] == '}' && len(name) > 0 && !bytes.ContainsAny(name, `"\`) {
			if seq, err := strconv.ParseUint(string(rest[:n]), 10, 64); err == nil {
				return &natsjs.PubAck{Stream: string(name), Sequence: seq}, nil
			}
		}
	}
	var ack struct {
		Error *natsjs.APIError `json:"error"`
		natsjs.PubAck
	}
	if err := json.Unmarshal(data, &ack); err != nil {
		return nil, natsjs.ErrInvalidJSAck
	}
	if ack.Error != nil {
		return nil, fmt.Errorf("nats: %w", ack.Error)
	}
	if ack.Stream == "" {
		return nil, natsjs.ErrInvalidJSAck
	}
	return &ack.PubAck, nil
}
