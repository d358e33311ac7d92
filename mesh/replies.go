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
	out  outbox

	mu      sync.Mutex
	prefix  string // of the reply subjects, with the last dot; "" before the first exchange
	sub     *nats.Subscription
	next    uint64
	waiting map[uint64]*exchange
	idle    []*exchange // with room for one answer, to be used again
}

// maxIdle is how many exchanges are kept for reuse.
const maxIdle = 256

// exchange is one request and what has come back so far.
type exchange struct {
	id       uint64
	subject  string // for the replies
	answers  chan *nats.Msg
	overflow atomic.Bool

	request *nats.Msg
	sent    atomic.Bool // request was published, or cannot be
	failed  error       // why it cannot; answers has a nil then
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
		r.waiting = map[uint64]*exchange{}
	}
	r.next++
	var x *exchange
	if n := len(r.idle); buffered == 1 && n > 0 {
		x = r.idle[n-1]
		r.idle = r.idle[:n-1]
	} else {
		x = &exchange{answers: make(chan *nats.Msg, buffered)}
	}
	var b [96]byte
	x.id, x.subject = r.next, string(strconv.AppendUint(append(b[:0], r.prefix...), r.next, 36))
	r.waiting[x.id] = x
	return x, nil
}

// send publishes the request of an exchange. What goes wrong, wait returns.
func (r *replies) send(x *exchange, request *nats.Msg) {
	request.Reply = x.subject
	x.request = request
	r.mu.Lock()
	alone := len(r.waiting) < gatherFrom
	r.mu.Unlock()
	if alone {
		x.publish(r.conn)
		return
	}
	r.out.send(x)
}

func (x *exchange) publish(conn *nats.Conn) {
	var err error
	if m := x.request; m.Header == nil {
		err = conn.PublishRequest(m.Subject, m.Reply, m.Data)
	} else {
		err = conn.PublishMsg(m)
	}
	if err != nil {
		x.failed = err
		select {
		case x.answers <- nil:
		default: // somebody has answered what was not asked
		}
	}
	x.sent.Store(true)
}

// close ends an exchange; later answers are dropped. The request's memory may
// be used again afterwards.
func (r *replies) close(x *exchange) {
	r.out.settle(x)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, x.id)
	if cap(x.answers) > 1 || len(r.idle) >= maxIdle {
		return
	}
	select {
	case <-x.answers: // came after the one that was waited for
	default:
	}
	x.overflow.Store(false)
	x.sent.Store(false)
	x.request, x.failed = nil, nil
	r.idle = append(r.idle, x)
}

// deliver runs on the subscription's goroutine and never blocks.
func (r *replies) deliver(msg *nats.Msg) {
	id, err := strconv.ParseUint(msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:], 36, 64)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.waiting[id]
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
		if msg == nil {
			return nil, x.failed
		}
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
