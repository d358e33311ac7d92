package api

import (
	"sync"

	"github.com/nats-io/nats.go"
)

// ear hears each error that a connection's server reports. The connection keeps only the
// last one: of two refusals at the same time one would be lost, and its request would
// wait until its time is over.
type ear struct {
	mu      sync.Mutex
	next    int
	waiting map[int]func(error)
}

// ears holds the ear of each connection.
var ears = struct {
	mu    sync.Mutex
	known map[*nats.Conn]*ear
}{known: map[*nats.Conn]*ear{}}

// earOf returns the ear of a connection. The first time it puts the ear before the
// application's error handler.
func earOf(nc *nats.Conn) *ear {
	ears.mu.Lock()
	defer ears.mu.Unlock()
	if e := ears.known[nc]; e != nil {
		return e
	}
	for other := range ears.known {
		if other.IsClosed() {
			delete(ears.known, other)
		}
	}
	e, handle := &ear{waiting: map[int]func(error){}}, nc.ErrorHandler()
	nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		e.hear(err)
		if handle != nil {
			handle(nc, sub, err)
		}
	})
	ears.known[nc] = e
	return e
}

// add has f called with each error, until forget is called.
func (e *ear) add(f func(error)) (forget func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.next++
	id := e.next
	e.waiting[id] = f
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.waiting, id)
	}
}

func (e *ear) hear(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.waiting {
		f(err)
	}
}
