package rpc

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/mesh/internal/listen"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
)

const (
	// MaxBuffered is how many answers of a stream may wait for a slow reader before
	// the exchange is given up.
	MaxBuffered = 4096
	// MaxBufferedBytes is how many bytes they may have; a single one may have more.
	MaxBufferedBytes = 64 << 20
	// fewBuffered is how many answers may wait where one is due: it, and strays
	// before it.
	fewBuffered = 8
)

// Exchanger takes all answers to the requests of a connection on one subscription and
// hands each to the exchange that waits for it. One exchange may have several
// answers: nats.go's own requests have one.
//
// A new reply subject costs the server a tenth of what the whole request costs: it looks
// the subject up, caches the result, and evicts it again. So the subject of an exchange
// that has had its one answer is used again for the same recipient, after a rest. A second
// answer that comes during the rest retires the subject. One that comes later names another
// task, which the caller checks, so that it is not taken for the answer to that task.
type Exchanger struct {
	conn *nats.Conn
	out  outbox

	mu     sync.Mutex
	prefix string // of the reply subjects, with the last dot; "" before the first exchange
	sub    *nats.Subscription
	byID   map[uint64]*Exchange  // those that wait and those that rest
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
	first, last *Exchange
	n           int
}

// Request is what an exchange begins with.
type Request struct {
	To     string // the subject
	Header nats.Header
	Data   []byte
	Stream bool // more than one answer is due
}

// Exchange is one request and what has come back so far.
type Exchange struct {
	id       uint64
	subject  string // for the replies
	to       string // the recipient's subject
	reused   bool   // another exchange had the subject before
	answered bool   // by what ends it
	resting  bool

	prev, next *Exchange // in the restPlace
	deadline   time.Time
	stream     bool // more than one answer is due
	answers    chan *nats.Msg
	size       atomic.Int64 // bytes of a stream's answers that wait
	overflow   atomic.Bool

	company bool // other exchanges are under way
	request Request
	sent    atomic.Bool // request was published, or cannot be
	failed  error       // why it cannot
	given   error       // see Fail
}

// What answers holds besides answers. There is always room for one of each: deliver
// leaves three places.
var (
	overdue = &nats.Msg{} // the deadline has passed
	notSent = &nats.Msg{} // the request could not be sent
	givenUp = &nats.Msg{} // see Fail
)

const places = 3

// Mark begins the last token of each reply subject. It says that the sender takes more
// than answers there: it knows what else may come.
const Mark = "h-"

// Marked reports whether a reply subject is one of an [Exchanger].
func Marked(reply string) bool {
	return strings.HasPrefix(reply[strings.LastIndexByte(reply, '.')+1:], Mark)
}

var exchangers listen.PerConn[Exchanger]

// Of returns the exchanger of a connection, which all its nodes share.
func Of(conn *nats.Conn) *Exchanger { return exchangers.Of(conn, New) }

// New makes an exchanger. It subscribes with the first exchange.
func New(conn *nats.Conn) *Exchanger { return &Exchanger{conn: conn, out: outbox{conn: conn}} }

// Reused reports whether another exchange had the reply subject before, so that a late
// answer to that one may come.
func (x *Exchange) Reused() bool { return x.reused }

// Overflowed reports whether answers were lost, for more than [MaxBuffered] waited, or
// more than [MaxBufferedBytes].
func (x *Exchange) Overflowed() bool { return x.overflow.Load() }

// Answered says that the exchange had the one answer that was due, so that its subject may
// be used again.
func (x *Exchange) Answered() { x.answered = true }

// Open begins an exchange with the subject to, of one answer or of a stream.
func (r *Exchanger) Open(to string, stream bool, deadline time.Time) (*Exchange, error) {
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
		r.byID, r.rest = map[uint64]*Exchange{}, map[string]*restPlace{}
		r.alarm.F = r.expire
	}
	var x *Exchange
	if place := r.rest[to]; !stream && place != nil && place.n >= minRest {
		x = place.first
		r.wake(x)
		x.reused = true
	} else {
		room := fewBuffered
		if stream {
			room = MaxBuffered
		}
		x = &Exchange{to: to, stream: stream, answers: make(chan *nats.Msg, room+places)}
		for x.id == 0 || r.byID[x.id] != nil {
			x.id = random()
		}
		var b [96]byte
		x.subject = string(strconv.AppendUint(append(append(b[:0], r.prefix...), Mark...), x.id, 36))
	}
	x.deadline = deadline
	r.byID[x.id] = x
	x.company = len(r.byID)-r.idle >= gatherFrom
	r.alarm.Set(deadline)
	return x, nil
}

// random returns the last token of a reply subject, as a number. A program that has seen earlier
// reply subjects must not know the next one: it could redirect an acknowledgement of JetStream
// there, see [listen.Redirected].
func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// wake takes x out of its rest, and from those that answers can find.
func (r *Exchanger) wake(x *Exchange) {
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
func (r *Exchanger) lay(x *Exchange) {
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

// Send publishes the request of an exchange. What goes wrong, wait returns.
func (r *Exchanger) Send(x *Exchange, what Request) {
	x.request = what
	if x.company {
		r.out.send(x)
	} else {
		x.publish(r.conn)
	}
}

func (x *Exchange) publish(conn *nats.Conn) {
	var err error
	if q := &x.request; q.Header == nil {
		err = conn.PublishRequest(q.To, x.subject, q.Data)
	} else {
		err = conn.PublishMsg(&nats.Msg{Subject: q.To, Reply: x.subject, Header: q.Header, Data: q.Data})
	}
	if err != nil {
		x.failed = err
		x.answers <- notSent
	}
	x.sent.Store(true)
}

// Close ends an exchange; later answers are dropped. The request's memory may
// be used again afterwards.
func (r *Exchanger) Close(x *Exchange) {
	r.out.settle(x)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byID, x.id)
	if !x.answered || x.stream || x.overflow.Load() || len(x.answers) > 0 || !strings.HasPrefix(x.subject, r.prefix) {
		return
	}
	x.answered = false
	x.sent.Store(false)
	x.request, x.given = Request{}, nil
	r.lay(x)
}

// Hasten brings the deadline of x forward.
func (r *Exchanger) Hasten(x *Exchange, deadline time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if deadline.Before(x.deadline) { // which is zero once it has passed
		x.deadline = deadline
		r.alarm.Set(deadline)
	}
}

// Fail ends the wait of x with an error, behind the answers that have come. It does
// nothing where x is closed.
func (r *Exchanger) Fail(x *Exchange, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID[x.id] == x && !x.resting && x.given == nil {
		x.given = err
		x.answers <- givenUp
	}
}

// deliver runs on the subscription's goroutine and never blocks.
func (r *Exchanger) deliver(msg *nats.Msg) {
	id, err := strconv.ParseUint(strings.TrimPrefix(msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:], Mark), 36, 64)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch x := r.byID[id]; {
	case x == nil, listen.Redirected(msg, x.subject):
	case x.resting:
		r.wake(x) // for good: this is a second answer
	case len(x.answers) < cap(x.answers)-places && x.fits(msg):
		x.answers <- msg
	default:
		x.overflow.Store(true)
		if !x.stream {
			x.displace(msg)
		}
	}
}

// fits counts an answer of a stream, unless it is too much beside those that wait.
func (x *Exchange) fits(msg *nats.Msg) bool {
	if !x.stream {
		return true
	}
	n := int64(msg.Size())
	if wait := x.size.Load(); wait > 0 && wait+n > MaxBufferedBytes {
		return false
	}
	x.size.Add(n)
	return true
}

// displace puts msg in place of the oldest answer that waits: who streams to a
// sender that did not ask for it ends with the one that is due.
func (x *Exchange) displace(msg *nats.Msg) {
	select {
	case oldest := <-x.answers:
		if oldest == overdue || oldest == notSent || oldest == givenUp {
			msg = oldest // nothing is waited for any more
		}
	default: // all have just been read
	}
	x.answers <- msg
}

// expire tells the exchanges that are past their deadline.
func (r *Exchanger) expire() {
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

// Wait returns the next answer.
func (x *Exchange) Wait(ctx context.Context) (msg *nats.Msg, err error) {
	if done := ctx.Done(); done == nil {
		msg = <-x.answers
	} else {
		select {
		case msg = <-x.answers:
		case <-done:
			return nil, context.Cause(ctx)
		}
	}
	if x.stream {
		x.size.Add(-int64(msg.Size()))
	}
	switch {
	case msg == overdue:
		return nil, context.DeadlineExceeded
	case msg == notSent:
		return nil, x.failed
	case msg == givenUp:
		return nil, x.given
	case len(msg.Data) == 0 && len(msg.Header) > 0 && msg.Header.Get("Status") == "503":
		return nil, nats.ErrNoResponders
	}
	return msg, nil
}
