package jetstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Gather returns js with a PublishMsg that many goroutines may call at once at
// less cost: messages that are published at about the same time share a system
// call, and their acknowledgements one subscription. Alone, a message takes as
// long as before. Everything else is js itself, and so is PublishMsg where it
// is given options.
//
// When the connection is lost, the messages that were under way fail at once
// with [nats.ErrDisconnected] instead of at the end of their time: their
// acknowledgements cannot come any more, though they may be stored.
//
// The subscription is made with the first message and ends with the connection.
func Gather(js natsjs.JetStream) natsjs.JetStream {
	if g, ok := js.(*gathered); ok {
		return g
	}
	return &gathered{JetStream: js, waiting: map[string]chan<- published{}}
}

// gathered publishes through a queue: the first sender lets the others go on,
// and then publishes for all. The connection flushes whenever a publisher
// waits, so that senders that each publish one message would cost a system call
// a message.
type gathered struct {
	natsjs.JetStream

	mu      sync.Mutex
	inbox   string // with its closing dot; "" before the first message
	last    uint64
	waiting map[string]chan<- published // by reply subject
	queue   []*nats.Msg

	publishing sync.Mutex // held while what was in the queue goes out
}

// published is what became of a message.
type published struct {
	answer *nats.Msg
	err    error
}

// How often a message is published again where nobody heard it: a stream may
// be about to have another leader. As nats.go does.
const (
	publishRetries   = 2
	publishRetryWait = 250 * time.Millisecond
)

// PublishMsg publishes a message and waits for its acknowledgement, for 5 s at
// most.
func (g *gathered) PublishMsg(ctx context.Context, m *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	if len(opts) > 0 {
		return g.JetStream.PublishMsg(ctx, m, opts...)
	}
	ctx, cancel := oneRequest(ctx)
	defer cancel()
	for try := 0; ; try++ {
		answer, err := g.exchange(ctx, m)
		if err == nil && len(answer.Data) == 0 && answer.Header.Get("Status") == "503" {
			err = natsjs.ErrNoStreamResponse
		}
		if err == nil {
			return readAck(answer.Data)
		}
		if !errors.Is(err, natsjs.ErrNoStreamResponse) || try == publishRetries {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, natsjs.ErrNoStreamResponse
		case <-time.After(publishRetryWait):
		}
	}
}

func (g *gathered) exchange(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	done := make(chan published, 1)
	out := &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
	first, company, err := g.enqueue(out, done)
	if err != nil {
		return nil, err
	}
	if first {
		if company {
			runtime.Gosched()
		}
		g.flush()
	}
	select {
	case p := <-done:
		return p.answer, p.err
	case <-ctx.Done():
		g.leave(out)
		return nil, ctx.Err()
	}
}

// leave returns when nobody reads the message's bytes any more: they are the
// caller's.
func (g *gathered) leave(m *nats.Msg) {
	g.take(m.Reply)
	g.mu.Lock()
	n := len(g.queue)
	g.queue = slices.DeleteFunc(g.queue, func(q *nats.Msg) bool { return q == m })
	published := len(g.queue) == n
	g.mu.Unlock()
	if published { // or is just now
		g.publishing.Lock()
		defer g.publishing.Unlock()
	}
}

// gatherFrom is how many messages must be under way before a sender looks for
// company: with fewer there is nobody to wait for, and a sender that is alone goes
// through the scheduler, and asks the network what is new, for nothing.
const gatherFrom = 4

// enqueue reports whether the message is the first of those that wait, and
// whether others are likely to join it.
func (g *gathered) enqueue(m *nats.Msg, done chan<- published) (first, company bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inbox == "" {
		inbox := g.Conn().NewInbox() + "."
		if _, err := g.Conn().Subscribe(inbox+"*", g.answered); err != nil {
			return false, false, err
		}
		g.inbox = inbox
		go g.watch(g.Conn().StatusChanged(nats.RECONNECTING, nats.CLOSED))
	}
	g.last++
	m.Reply = g.inbox + strconv.FormatUint(g.last, 36)
	g.waiting[m.Reply] = done
	g.queue = append(g.queue, m)
	return len(g.queue) == 1, len(g.waiting) >= gatherFrom, nil
}

// flush publishes what is in the queue.
func (g *gathered) flush() {
	g.publishing.Lock()
	defer g.publishing.Unlock()
	g.mu.Lock()
	batch := g.queue
	g.queue = nil
	g.mu.Unlock()
	for _, m := range batch {
		if err := g.Conn().PublishMsg(m); err != nil {
			g.settle(m.Reply, published{err: err})
		}
	}
}

// watch gives up what was under way whenever the connection is lost. It ends
// with the connection.
func (g *gathered) watch(status <-chan nats.Status) {
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

func (g *gathered) answered(m *nats.Msg) { g.settle(m.Subject, published{answer: m}) }

func (g *gathered) settle(reply string, p published) {
	if done := g.take(reply); done != nil {
		done <- p
	}
}

func (g *gathered) take(reply string) chan<- published {
	g.mu.Lock()
	defer g.mu.Unlock()
	done := g.waiting[reply]
	delete(g.waiting, reply)
	return done
}

// readAck reads a stream's acknowledgement. Nearly all look the same:
// {"stream":"KV_aee_state","seq":7}; older servers write a space before "seq".
func readAck(data []byte) (*natsjs.PubAck, error) {
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
