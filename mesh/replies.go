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
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
)

const (
	// maxBuffered is how many stream envelopes may wait for a slow reader before
	// the exchange is given up.
	maxBuffered = 4096
	// fewBuffered is how many answers may wait where one is due: it, and strays
	// before it.
	fewBuffered = 8
)

// replies takes all answers to this node's requests on one subscription and
// hands each to the exchange that waits for it. One exchange may have several
// answers: nats.go's own requests have one.
//
// A reply subject that nobody has used before is dear to the server, which looks
// it up, remembers the outcome, and forgets it again: a tenth of what a request
// costs all sides together. So the subject of an exchange that has had its one
// answer is used again, for the same recipient, and only after it has rested.
// Whoever answers twice, at once or late, is found out by the rest, which ends the
// subject's life, or by what the answer names (see [concerns]), so that it is not
// taken for the answer to a later task. Only what names nothing may be, where
// nothing better comes (see [doubt]).
type replies struct {
	conn *nats.Conn
	out  outbox

	mu     sync.Mutex
	prefix string // of the reply subjects, with the last dot; "" before the first exchange
	sub    *nats.Subscription
	next   uint64
	byID   map[uint64]*exchange  // those that wait and those that rest
	rest   map[string]*restPlace // by recipient
	idle   int                   // how many rest
	alarm  sched.Alarm           // for the deadlines of those that wait
}

const (
	// maxIdle is how many exchanges rest at most. A server keeps the outcome
	// for as many subjects of a connection.
	maxIdle = 512
	// minRest is how many of a recipient's must rest before the one that has
	// rested longest is used again.
	minRest = 32
)

// restPlace is a list of resting exchanges, the longest rested first.
type restPlace struct {
	first, last *exchange
	n           int
}

// request is what an exchange begins with.
type request struct {
	to     string
	header nats.Header
	data   []byte
	stream bool // more than one answer is due
}

// exchange is one request and what has come back so far.
type exchange struct {
	id       uint64
	subject  string // for the replies
	to       string // the recipient's subject
	reused   bool   // another exchange had the subject before
	answered bool   // by what ends it
	resting  bool

	prev, next *exchange // in the restPlace
	deadline   time.Time
	stream     bool // more than one answer is due
	answers    chan *nats.Msg
	overflow   atomic.Bool

	company bool // other exchanges are under way
	request request
	sent    atomic.Bool // request was published, or cannot be
	failed  error       // why it cannot
}

// What answers holds besides answers. There is always room for one of each: deliver
// leaves two places.
var (
	overdue = &nats.Msg{} // the deadline has passed
	notSent = &nats.Msg{} // the request could not be sent
)

// errOverflow ends an exchange whose reader fell behind.
var errOverflow = envelope.Errorf(envelope.CodeUnavailable, "more than %d stream envelopes waited to be read", maxBuffered)

// open begins an exchange with the subject to, of one answer or of a stream.
func (r *replies) open(to string, stream bool, deadline time.Time) (*exchange, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sub == nil || !r.sub.IsValid() {
		prefix := r.conn.NewInbox() + "."
		sub, err := r.conn.Subscribe(prefix+"*", r.deliver)
		if err != nil {
			return nil, err
		}
		r.prefix, r.sub = prefix, sub
		for _, x := range r.byID {
			if x.resting {
				r.wake(x)
			}
		}
	}
	if r.byID == nil {
		r.byID, r.rest = map[uint64]*exchange{}, map[string]*restPlace{}
		r.alarm.F = r.expire
	}
	var x *exchange
	if place := r.rest[to]; !stream && place != nil && place.n >= minRest {
		x = place.first
		r.wake(x)
		x.reused = true
	} else {
		room := fewBuffered
		if stream {
			room = maxBuffered
		}
		x = &exchange{to: to, stream: stream, answers: make(chan *nats.Msg, room+2)}
		r.next++
		var b [96]byte
		x.id, x.subject = r.next, string(strconv.AppendUint(append(b[:0], r.prefix...), r.next, 36))
	}
	x.deadline = deadline
	r.byID[x.id] = x
	x.company = len(r.byID)-r.idle >= gatherFrom
	r.alarm.Set(deadline)
	return x, nil
}

// wake takes x out of its rest, and from those that answers can find.
func (r *replies) wake(x *exchange) {
	place := r.rest[x.to]
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		place.first = x.next
	}
	if x.next != nil {
		x.next.prev = x.prev
	} else {
		place.last = x.prev
	}
	x.prev, x.next, x.resting = nil, nil, false
	delete(r.byID, x.id)
	r.idle--
	if place.n--; place.n == 0 {
		delete(r.rest, x.to)
	}
}

// lay lets x rest, in place of another where too many do.
func (r *replies) lay(x *exchange) {
	if r.idle >= maxIdle {
		for _, place := range r.rest { // any
			r.wake(place.first)
			break
		}
	}
	place := r.rest[x.to]
	if place == nil {
		place = &restPlace{}
		r.rest[x.to] = place
	}
	x.prev, x.resting = place.last, true
	if x.prev != nil {
		x.prev.next = x
	} else {
		place.first = x
	}
	place.last = x
	place.n++
	r.idle++
	r.byID[x.id] = x
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
	delete(r.byID, x.id)
	if !x.answered || x.stream || x.overflow.Load() || len(x.answers) > 0 || !strings.HasPrefix(x.subject, r.prefix) {
		return
	}
	x.answered = false
	x.sent.Store(false)
	x.request = request{}
	r.lay(x)
}

// hasten brings the deadline of x forward.
func (r *replies) hasten(x *exchange, deadline time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if deadline.Before(x.deadline) { // which is zero once it has passed
		x.deadline = deadline
		r.alarm.Set(deadline)
	}
}

// deliver runs on the subscription's goroutine and never blocks.
func (r *replies) deliver(msg *nats.Msg) {
	id, err := strconv.ParseUint(msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:], 36, 64)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch x := r.byID[id]; {
	case x == nil:
	case x.resting:
		r.wake(x) // for good: somebody answers twice
	case len(x.answers) < cap(x.answers)-2:
		x.answers <- msg
	default:
		x.overflow.Store(true)
		if !x.stream {
			x.displace(msg)
		}
	}
}

// displace puts msg in place of the oldest answer that waits: who streams to a
// sender that did not ask for it ends with the one that is due.
func (x *exchange) displace(msg *nats.Msg) {
	select {
	case oldest := <-x.answers:
		if oldest == overdue || oldest == notSent {
			msg = oldest // nothing is waited for any more
		}
	default: // all have just been read
	}
	x.answers <- msg
}

// expire tells the exchanges that are past their deadline.
func (r *replies) expire() {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alarm.WentOff()
	for _, x := range r.byID {
		switch {
		case x.resting:
		case x.deadline.After(now):
			r.alarm.Set(x.deadline)
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
