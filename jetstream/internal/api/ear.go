package api

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/nats-io/nats.go"
)

// ear hears each error that a connection's server reports. The connection keeps only the
// last one: of two refusals at the same time one would be lost, and its request would
// wait until its time is over.
type ear struct {
	before sync.Once // puts it before the application's error handler

	mu      sync.Mutex
	next    int
	waiting map[int]func(error)
	told    error // the last denial that a caller has received
	last    error // the last denial that was heard
	heard   time.Time
}

// ears holds the ears by connection ([weak.Pointer] of [nats.Conn]). No lock is held while a
// connection is asked for anything: one whose socket is blocked does not answer, and must not
// hold up the others.
var ears sync.Map

// earOf returns the ear of a connection.
func earOf(nc *nats.Conn) *ear {
	key := weak.Make(nc)
	known, there := ears.Load(key)
	if !there {
		if known, there = ears.LoadOrStore(key, &ear{waiting: map[int]func(error){}}); !there {
			runtime.AddCleanup(nc, func(key weak.Pointer[nats.Conn]) { ears.Delete(key) }, key)
		}
	}
	e := known.(*ear)
	e.before.Do(func() {
		handle := nc.ErrorHandler()
		nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
			e.hear(err)
			if handle != nil {
				handle(nc, sub, err)
			}
		})
	})
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
	if errors.Is(err, nats.ErrPermissionViolation) {
		e.last, e.heard = err, time.Now()
	}
	var all []func(error)
	for _, f := range e.waiting {
		all = append(all, f)
	}
	e.mu.Unlock()
	for _, f := range all {
		f(err)
	}
}

// tell notes a denial that a caller receives. The connection keeps returning it as its last
// error; it must not be taken for the cause of a later timeout.
func (e *ear) tell(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = err
}

// wasTold reports whether a caller has received this denial.
func wasTold(nc *nats.Conn, err error) bool {
	return earKnows(nc, func(e *ear) bool { return e.told == err })
}

// forgotten is the age of a denial that no request waits for any more.
const forgotten = time.Minute

// isOld reports whether this denial was heard long ago. That of a subscription lasts: a
// connection subscribes to its inbox once, and hears once that it may not.
func isOld(nc *nats.Conn, err error) bool {
	return !strings.Contains(err.Error(), "Violation for Subscription") && earKnows(nc, func(e *ear) bool { return e.last == err && time.Since(e.heard) > forgotten })
}

func earKnows(nc *nats.Conn, what func(*ear) bool) bool {
	known, there := ears.Load(weak.Make(nc))
	if !there {
		return false
	}
	e := known.(*ear)
	e.mu.Lock()
	defer e.mu.Unlock()
	return what(e)
}
