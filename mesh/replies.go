package mesh

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
)

// maxBuffered is how many stream envelopes may wait for a slow reader before
// the exchange is given up.
const maxBuffered = 4096

// replies takes all answers to this node's requests on one subscription and
// hands each to the exchange that waits for it. One exchange may have several
// answers: nats.go's own requests have one.
type replies struct {
	conn *nats.Conn

	mu      sync.Mutex
	prefix  string // of the reply subjects, with the last dot; "" before the first exchange
	sub     *nats.Subscription
	next    uint64
	waiting map[string]*exchange
}

// exchange is one request and what has come back so far.
type exchange struct {
	subject  string
	token    string
	answers  chan *nats.Msg
	overflow atomic.Bool
}

// errOverflow ends an exchange whose reader fell behind.
var errOverflow = envelope.Errorf(envelope.CodeUnavailable, "more than %d stream envelopes waited to be read", maxBuffered)

// open begins an exchange; buffered is how many answers may wait to be read.
func (r *replies) open(buffered int) (*exchange, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sub == nil || !r.sub.IsValid() {
		prefix := r.conn.NewInbox() + "."
		sub, err := r.conn.Subscribe(prefix+"*", r.deliver)
		if err != nil {
			return nil, err
		}
		r.prefix, r.sub = prefix, sub
	}
	if r.waiting == nil {
		r.waiting = map[string]*exchange{}
	}
	r.next++
	x := &exchange{answers: make(chan *nats.Msg, buffered)}
	var b [96]byte
	subject := strconv.AppendUint(append(b[:0], r.prefix...), r.next, 36)
	x.subject = string(subject)
	x.token = x.subject[len(r.prefix):]
	r.waiting[x.token] = x
	return x, nil
}

// close ends an exchange; later answers are dropped.
func (r *replies) close(x *exchange) {
	r.mu.Lock()
	delete(r.waiting, x.token)
	r.mu.Unlock()
}

// deliver runs on the subscription's goroutine and never blocks.
func (r *replies) deliver(msg *nats.Msg) {
	token := msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:]
	r.mu.Lock()
	x := r.waiting[token]
	r.mu.Unlock()
	if x == nil {
		return
	}
	select {
	case x.answers <- msg:
	default:
		x.overflow.Store(true)
	}
}

// timers are reused: most are stopped long before they fire.
var timers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}}

// wait returns the next answer.
func (x *exchange) wait(ctx context.Context, deadline time.Time) (*nats.Msg, error) {
	timer := timers.Get().(*time.Timer)
	timer.Reset(time.Until(deadline))
	defer func() {
		timer.Stop()
		timers.Put(timer)
	}()
	select {
	case msg := <-x.answers:
		if len(msg.Data) == 0 && len(msg.Header) > 0 && msg.Header.Get("Status") == "503" {
			return nil, nats.ErrNoResponders
		}
		return msg, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timer.C:
		return nil, context.DeadlineExceeded
	}
}
