package denial

import (
	"errors"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/nats-io/nats.go"
)

// kept is how many denials of a connection are kept.
const kept = 64

// An ear receives each error that a connection's server reports.
type ear struct {
	before sync.Once // installs it in front of the application's error handler

	mu        sync.Mutex
	count     uint64   // of denials that were heard
	denials   []Denial // the last ones, the oldest first; subscriptions are kept longest
	listeners map[uint64]func(Denial)
	next      uint64        // the number of the next listener
	news      chan struct{} // closed when a denial is heard
}

// ears holds the ears by connection ([weak.Pointer] of [nats.Conn]). No lock is held during a call
// of a connection: a connection whose socket is blocked does not return, and must not block the
// others.
var ears sync.Map

// earOf returns the ear of a connection.
func earOf(nc *nats.Conn) *ear {
	key := weak.Make(nc)
	known, there := ears.Load(key)
	if !there {
		if known, there = ears.LoadOrStore(key, &ear{listeners: map[uint64]func(Denial){}, news: make(chan struct{})}); !there {
			runtime.AddCleanup(nc, func(key weak.Pointer[nats.Conn]) { ears.Delete(key) }, key)
		}
	}
	e := known.(*ear)
	e.before.Do(func() {
		e.hear(nc, nc.LastError())
		e.wrap(nc)
	})
	return e
}

// wrap installs the ear in front of the connection's current error handler, unless that is the
// ear's own: handlers would pile up with each listener.
func (e *ear) wrap(nc *nats.Conn) {
	handle := nc.ErrorHandler()
	if reflect.ValueOf(handle).Pointer() != own {
		nc.SetErrorHandler((&front{e, handle}).handle)
	}
}

// front is the ear of a connection in front of another error handler.
type front struct {
	ear  *ear
	next nats.ErrHandler // nil: none
}

func (f *front) handle(nc *nats.Conn, sub *nats.Subscription, err error) {
	f.ear.hear(nc, err)
	if f.next != nil {
		f.next(nc, sub, err)
	}
}

// own is the code of each front's handler.
var own = reflect.ValueOf((*front)(nil).handle).Pointer()

// hear stores err if it is a new denial, and passes it to the listeners.
func (e *ear) hear(nc *nats.Conn, err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	reconnects := nc.Stats().Reconnects
	e.mu.Lock()
	if e.knows(err) {
		e.mu.Unlock()
		return
	}
	d := parse(err)
	e.count++
	d.number, d.reconnects = e.count, reconnects
	if len(e.denials) == kept {
		oldest := max(0, slices.IndexFunc(e.denials, func(d Denial) bool { return d.Op != Subscribe }))
		e.denials = slices.Delete(e.denials, oldest, oldest+1)
	}
	e.denials = append(e.denials, d)
	close(e.news)
	e.news = make(chan struct{})
	var all []func(Denial)
	for _, f := range e.listeners {
		all = append(all, f)
	}
	e.mu.Unlock()
	for _, f := range all {
		f(d)
	}
}

// knows reports whether this error value was received before. The caller holds the lock.
func (e *ear) knows(err error) bool {
	return slices.ContainsFunc(e.denials, func(d Denial) bool { return d.Err == err })
}

// patience is how long settle waits.
const patience = 100 * time.Millisecond

// settle waits until the ear has received the last denial that nats.go knows, because nats.go
// calls error handlers on a goroutine of its own. If the application has replaced the handler
// since, settle waits for the whole patience, and then passes the denial to the ear itself.
func (e *ear) settle(nc *nats.Conn) {
	last := nc.LastError()
	if !errors.Is(last, nats.ErrPermissionViolation) {
		return
	}
	var late <-chan time.Time
	for {
		e.mu.Lock()
		known, news := e.knows(last), e.news
		e.mu.Unlock()
		if known {
			return
		}
		if late == nil {
			late = time.After(patience)
		}
		select {
		case <-news:
		case <-late:
			e.hear(nc, last)
			return
		}
	}
}

// Listen calls f with each denial of the connection until forget is called, also if the
// application has replaced the error handler before. f must not wait for the connection.
func Listen(nc *nats.Conn, f func(Denial)) (forget func()) {
	e := earOf(nc)
	e.wrap(nc)
	return e.add(f)
}

func (e *ear) add(f func(Denial)) (forget func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.next++
	id := e.next
	e.listeners[id] = f
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.listeners, id)
	}
}

// A Since knows the denials of a connection after a moment.
type Since struct {
	nc    *nats.Conn
	ear   *ear
	count uint64
}

// Now returns a Since that begins now. A round trip such as [nats.Conn.Flush] makes sure that it
// has the denials of everything sent before.
func Now(nc *nats.Conn) Since {
	e := earOf(nc)
	e.settle(nc)
	e.mu.Lock()
	defer e.mu.Unlock()
	return Since{nc: nc, ear: e, count: e.count}
}

// All returns the denials, the oldest first: of more than 64 the last ones. It must not be
// called in an error handler of the connection.
func (s Since) All() []Denial {
	s.ear.settle(s.nc)
	s.ear.mu.Lock()
	defer s.ear.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.ear.denials), func(d Denial) bool { return d.number <= s.count })
}

// Find returns the first denial that matches, or false.
func (s Since) Find(match func(Denial) bool) (Denial, bool) {
	all := s.All()
	if i := slices.IndexFunc(all, match); i >= 0 {
		return all[i], true
	}
	return Denial{}, false
}

// lasting is the age after which a denied publish no longer explains a failure. A denied
// subscription explains one for longer: a connection subscribes to its inbox once, and is told
// once that it may not.
const lasting = time.Minute

// Lately reports whether the server has denied op on exactly this subject within the last minute, since
// the connection was last made. It sees only what was noticed already, and does not wait.
func Lately(nc *nats.Conn, op Op, subject string) bool {
	e := earOf(nc)
	reconnects := nc.Stats().Reconnects
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.denials, func(d Denial) bool {
		return d.reconnects == reconnects && time.Since(d.heard) < lasting && d.Is(op, subject)
	})
}

// Why returns the newest denial that matches and may explain a missing answer on the connection.
// It leaves out denied publishes that are old or that [Until] has reported to its caller, and
// denials from before the last reconnect, because nats.go then subscribes again.
func Why(nc *nats.Conn, match func(Denial) bool) (Denial, bool) {
	e := earOf(nc)
	e.settle(nc)
	reconnects := nc.Stats().Reconnects
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range slices.Backward(e.denials) {
		if d.reconnects == reconnects && (d.Op == Subscribe || !d.reported && time.Since(d.heard) < lasting) && match(d) {
			return d, true
		}
	}
	return Denial{}, false
}
