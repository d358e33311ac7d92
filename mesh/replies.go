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
	alarm   alarm       // for their deadlines
}

// maxIdle is how many exchanges are kept for reuse.
const maxIdle = 256

// request is what an exchange begins with.
type request struct {
	to     string
	header nats.Header
	data   []byte
}

// exchange is one request and what has come back so far.
type exchange struct {
	id       uint64
	subject  string // for the replies
	deadline time.Time
	room     int // for answers that wait to be read
	answers  chan *nats.Msg
	overflow atomic.Bool

	company bool // other exchanges are under way
	request request
	sent    atomic.Bool // request was published, or cannot be
	failed  error       // why it cannot
}

// What answers holds besides answers. There is always room for one of each.
var (
	overdue = &nats.Msg{} // the deadline has passed
	notSent = &nats.Msg{} // the request could not be sent
)

// errOverflow ends an exchange whose reader fell behind.
var errOverflow = envelope.Errorf(envelope.CodeUnavailable, "more than %d stream envelopes waited to be read", maxBuffered)

// open begins an exchange; room is how many answers may wait to be read.
func (r *replies) open(room int, deadline time.Time) (*exchange, error) {
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
		r.alarm.f = r.expire
	}
	var x *exchange
	if n := len(r.idle); room == 1 && n > 0 {
		x = r.idle[n-1]
		r.idle = r.idle[:n-1]
	} else {
		x = &exchange{room: room, answers: make(chan *nats.Msg, room+2)}
	}
	r.next++
	var b [96]byte
	x.id, x.subject = r.next, string(strconv.AppendUint(append(b[:0], r.prefix...), r.next, 36))
	x.deadline = deadline
	r.waiting[x.id] = x
	x.company = len(r.waiting) >= gatherFrom
	r.alarm.set(deadline)
	return x, nil
}

// send publishes the request of an exchange. What goes wrong, wait returns.
func (r *replies) send(x *exchange, what request) {
	x.request = what
	if x.company {
		r.out.send(x)
	} else {
		x.publish(r.conn)
	}
}

func (x *exchange) publish(conn *nats.Conn) {
	var err error
	if q := &x.request; q.header == nil {
		err = conn.PublishRequest(q.to, x.subject, q.data)
	} else {
		err = conn.PublishMsg(&nats.Msg{Subject: q.to, Reply: x.subject, Header: q.header, Data: q.data})
	}
	if err != nil {
		x.failed = err
		x.answers <- notSent
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
	if x.room > 1 || len(r.idle) >= maxIdle {
		return
	}
	for len(x.answers) > 0 {
		<-x.answers // came after the one that was waited for
	}
	x.overflow.Store(false)
	x.sent.Store(false)
	x.request, x.failed = request{}, nil
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
	switch x := r.waiting[id]; {
	case x == nil:
	case len(x.answers) < x.room:
		x.answers <- msg
	default:
		x.overflow.Store(true)
	}
}

// expire tells the exchanges that are past their deadline.
func (r *replies) expire() {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alarm.wentOff()
	for _, x := range r.waiting {
		switch {
		case x.deadline.After(now):
			r.alarm.set(x.deadline)
		case !x.deadline.IsZero():
			x.deadline = time.Time{} // told once
			x.answers <- overdue
		}
	}
}

// wait returns the next answer.
func (x *exchange) wait(ctx context.Context) (msg *nats.Msg, err error) {
	if done := ctx.Done(); done == nil {
		msg = <-x.answers
	} else {
		select {
		case msg = <-x.answers:
		case <-done:
			return nil, context.Cause(ctx)
		}
	}
	switch {
	case msg == overdue:
		return nil, context.DeadlineExceeded
	case msg == notSent:
		return nil, x.failed
	case len(msg.Data) == 0 && len(msg.Header) > 0 && msg.Header.Get("Status") == "503":
		return nil, nats.ErrNoResponders
	}
	return msg, nil
}
