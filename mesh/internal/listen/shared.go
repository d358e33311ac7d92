package listen

import (
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
)

// Shared handles the messages of many subscriptions on one goroutine, in the order of their
// arrival. A subscription of nats.go with a handler would have a goroutine of its own, and
// an agent has nine subscriptions that are seldom used. Handlers must not block. If
// maxSharedMessages messages wait, or maxSharedBytes and what came during one handler, further ones
// are dropped, and the connection's error handler is told of a slow consumer. The goroutine runs while
// there are subscriptions. The methods may be called from many goroutines.
type Shared struct {
	conn *nats.Conn
	most int // bytes that may wait

	mu       sync.Mutex
	handlers map[*nats.Subscription]nats.MsgHandler
	marks    map[*nats.Msg]chan struct{} // see Settle
	msgs     chan *nats.Msg
	end      func()
}

const (
	maxSharedMessages = 1 << 14
	maxSharedBytes    = 64 << 20 // as nats.go's own for a subscription
)

// NewShared returns a Shared without subscriptions. It does no I/O.
func NewShared(conn *nats.Conn) *Shared { return &Shared{conn: conn, most: maxSharedBytes} }

// Subscribe subscribes to a subject, in a queue group if group is not "".
func (e *Shared) Subscribe(subject, group string, handle nats.MsgHandler) (sub *nats.Subscription, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.handlers) == 0 {
		e.begin()
	}
	if group == "" {
		sub, err = e.conn.ChanSubscribe(subject, e.msgs)
	} else {
		sub, err = e.conn.ChanQueueSubscribe(subject, group, e.msgs)
	}
	if err == nil {
		e.handlers[sub] = handle
	} else if len(e.handlers) == 0 {
		defer e.end() // the goroutine has no subscription; it ends without mu
	}
	return sub, err
}

// begin starts the goroutine. e.mu is held.
func (e *Shared) begin() {
	e.handlers, e.marks, e.msgs = map[*nats.Subscription]nats.MsgHandler{}, map[*nats.Msg]chan struct{}{}, make(chan *nats.Msg, maxSharedMessages)
	msgs, over := e.msgs, make(chan struct{})
	ended := make(chan struct{})
	e.end = func() { close(over); <-ended }
	go func() {
		defer close(ended)
		e.run(msgs, over)
	}()
}

// run handles messages until over is closed. nats.go counts no bytes of a subscription with a channel.
// So before each handler, run takes what has come off the channel, and drops what is too much.
func (e *Shared) run(msgs <-chan *nats.Msg, over <-chan struct{}) {
	var (
		few     [16]*nats.Msg
		waiting []*nats.Msg
		size    int // of those that wait
		slow    bool
	)
	take := func(msg *nats.Msg) {
		if msg.Sub != nil && size > 0 && size+msg.Size() > e.most { // a mark is always taken
			if report := e.conn.ErrorHandler(); report != nil && !slow {
				go report(e.conn, msg.Sub, nats.ErrSlowConsumer)
			}
			slow = true
			return
		}
		waiting, size = append(waiting, msg), size+msg.Size()
	}
	for {
		if len(waiting) == 0 {
			waiting, slow = few[:0], false
			select {
			case msg := <-msgs:
				take(msg)
			case <-over:
				return
			}
		}
		for more := true; more && len(waiting) < maxSharedMessages; {
			select {
			case msg := <-msgs:
				take(msg)
			default:
				more = false
			}
		}
		msg := waiting[0]
		waiting[0] = nil
		waiting, size = waiting[1:], size-msg.Size()
		e.handle(msg)
	}
}

func (e *Shared) handle(msg *nats.Msg) {
	e.mu.Lock()
	handle, mark := e.handlers[msg.Sub], e.marks[msg]
	delete(e.marks, msg)
	e.mu.Unlock()
	if mark != nil {
		close(mark)
	}
	if handle != nil {
		handle(msg)
	}
}

// Settle returns when the messages that have arrived so far over subs have been handled. If
// none of subs is shared, it returns at once: another agent may end the goroutine meanwhile,
// which only a subscription that is not yet forgotten keeps running.
func (e *Shared) Settle(subs []*nats.Subscription) {
	mark, done := &nats.Msg{}, make(chan struct{})
	e.mu.Lock()
	if !slices.ContainsFunc(subs, func(sub *nats.Subscription) bool { return e.handlers[sub] != nil }) {
		e.mu.Unlock()
		return
	}
	e.marks[mark] = done
	msgs := e.msgs
	e.mu.Unlock()
	msgs <- mark
	<-done
}

// Forget removes the handlers of subscriptions that have ended, after their messages were
// handled. With the last handler it ends the goroutine.
func (e *Shared) Forget(subs []*nats.Subscription) {
	e.mu.Lock()
	end := func() {}
	for _, sub := range subs {
		if _, ok := e.handlers[sub]; !ok {
			continue
		}
		if delete(e.handlers, sub); len(e.handlers) == 0 {
			end = e.end
		}
	}
	e.mu.Unlock()
	end()
}
