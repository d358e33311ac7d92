package rpc

import (
	"runtime"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
)

// gatherFrom is how many exchanges must be under way before a sender waits for others
// to publish together with.
const gatherFrom = 4

// outbox gathers the requests that goroutines send at about the same time. The
// connection flushes as soon as a publisher waits, so that many senders that
// each publish one request and wait for its reply would cost a system call a
// request. Here the first of them lets the others go on, and then publishes
// for all.
type outbox struct {
	conn *nats.Conn

	mu      sync.Mutex
	waiting []*Exchange

	publishing sync.Mutex  // held while what was waiting goes out
	spare      []*Exchange // the other slice; belongs to who holds publishing
}

// send publishes x.request. x.wait returns its error.
func (o *outbox) send(x *Exchange) {
	o.mu.Lock()
	o.waiting = append(o.waiting, x)
	first := len(o.waiting) == 1
	o.mu.Unlock()
	if first {
		runtime.Gosched()
		o.flush()
	}
}

// flush publishes what is waiting.
func (o *outbox) flush() {
	o.publishing.Lock()
	defer o.publishing.Unlock()
	o.mu.Lock()
	batch := o.waiting
	o.waiting = o.spare[:0]
	o.mu.Unlock()
	for _, x := range batch {
		x.publish(o.conn)
	}
	clear(batch)
	o.spare = batch
}

// settle returns when x's request has been published or never will be, so that
// its memory may be used again, and reports which.
func (o *outbox) settle(x *Exchange) (published bool) {
	if x.sent.Load() {
		return true
	}
	o.mu.Lock()
	if i := slices.Index(o.waiting, x); i >= 0 {
		o.waiting = slices.Delete(o.waiting, i, i+1)
		o.mu.Unlock()
		return false
	}
	o.mu.Unlock()
	// Another goroutine has taken it, and publishes it now.
	o.publishing.Lock()
	defer o.publishing.Unlock()
	return x.sent.Load()
}
