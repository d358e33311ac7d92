package jetstream

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
)

// A Notifier wakes the sleeping lanes of a process: see [LaneOptions.Notifier]. A
// process needs one for each connection; its goroutines run while a lane uses it.
//
// It has two sources. The submission of a task is also a message on the task's subject,
// to which the lane of a sleeping entity subscribes. That is fast, and it may be lost.
// And about once a second the notifier asks the server which subjects hold messages,
// with one request for each stream, however many lanes there are. That finds what a
// subscription cannot: redeliveries, delayed tasks that fall due, and lost messages.
//
// Once a minute, and after a reconnect, it also looks whether [BucketLanes] still has the
// records of its lanes, and registers those that are missing.
type Notifier struct {
	q     *Queue
	rings chan *nats.Msg // of the subscriptions of all lanes
	soon  chan struct{}  // wakes the poll

	every, linger time.Duration // pollEvery, and see lane_sleep.go
	register      time.Duration // registerEvery

	// A user may lack permission to subscribe, or to ask for a stream's subjects. Then
	// the poll alone wakes, or the lanes do not sleep.
	mute  atomic.Bool
	blind [watchedStreams]atomic.Bool
	// Nor may it perhaps see or write what is recorded of its lanes.
	unlisted atomic.Bool

	mu      sync.Mutex
	lanes   map[string]map[*Lane]struct{} // by entity
	awake   map[*Lane]struct{}            // lanes that have sources that do not sleep
	members int
	end     func() // ends the goroutines
	polled  [watchedStreams]poll
}

// The streams that a notifier asks about.
const (
	watchedWork = iota
	watchedDue
	watchedStreams
)

// poll is the outcome of the last question about a stream.
type poll struct {
	began time.Time // when it was sent
	at    time.Time // when it was answered, by the server's clock; of the last answer
	why   error     // nil: it was answered
	since time.Time // since when why is nil, or is not
	held  map[heldKey]bool
}

// heldKey names a source that has messages.
type heldKey struct{ entity, priority string }

const (
	// pollEvery is the pause between two polls, unless they take long: then they take
	// one part in pollShare of the time, but the pause is no longer than pollMost. pollLeast
	// is the pause after a poll that was asked for.
	pollEvery = time.Second
	pollShare = 20
	pollMost  = 20 * time.Second
	pollLeast = 50 * time.Millisecond
	// pollEach is up to how many entities of a process are asked about one by one: a
	// process with few agents does not read about the tasks of a large mesh.
	pollEach = 4
	// maxRings bounds the signals that wait. The server's further messages are dropped,
	// and the poll finds their tasks.
	maxRings = 4096
)

// NewNotifier returns a notifier for lanes of the queue. It does no I/O.
func (q *Queue) NewNotifier() *Notifier {
	return &Notifier{
		q: q, rings: make(chan *nats.Msg, maxRings), soon: make(chan struct{}, 1), every: pollEvery, linger: linger, register: registerEvery,
		lanes: map[string]map[*Lane]struct{}{}, awake: map[*Lane]struct{}{},
	}
}

// join adds a lane until the returned function is called.
func (n *Notifier) join(l *Lane) (leave func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lanes[l.entity] == nil {
		n.lanes[l.entity] = map[*Lane]struct{}{}
	}
	n.lanes[l.entity][l] = struct{}{}
	if n.members++; n.members == 1 {
		n.begin()
	}
	return func() {
		n.mu.Lock()
		delete(n.lanes[l.entity], l)
		if len(n.lanes[l.entity]) == 0 {
			delete(n.lanes, l.entity)
		}
		delete(n.awake, l)
		var end func()
		if n.members--; n.members == 0 {
			end, n.end = n.end, nil
		}
		n.mu.Unlock()
		if end != nil {
			end()
		}
	}
}

// begin starts the goroutines. n.mu is held.
func (n *Notifier) begin() {
	n.polled = [watchedStreams]poll{}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.hear(ctx) })
	running.Go(func() { n.watch(ctx) })
	running.Go(func() { n.keepRegistered(ctx) })
	n.end = func() {
		cancel()
		running.Wait()
	}
}

// hear passes on the signals of the subscriptions.
func (n *Notifier) hear(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case msg := <-n.rings:
			if a, err := n.q.m.Parse(msg.Subject); err == nil && a.Kind == subject.Work {
				n.rouse(heldKey{a.Entity, a.Priority})
			}
		}
	}
}

func (n *Notifier) rouse(key heldKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.lanes[key.entity] {
		l.rouse(key.priority)
	}
}

// note records whether a lane has sources that do not sleep.
func (n *Notifier) note(l *Lane, awake bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !awake:
		delete(n.awake, l)
	case n.lanes[l.entity] != nil:
		n.awake[l] = struct{}{}
	}
}

// poll asks for a poll soon. It does not block.
func (n *Notifier) poll() { pause.Wake(n.soon) }

// watch polls from time to time, when it is asked to, and after a reconnect.
func (n *Notifier) watch(ctx context.Context) {
	nc := n.q.js.Conn()
	status := nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(status)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-status:
			if s == nats.CONNECTED {
				timer.Reset(0)
				continue
			}
			n.lost(s)
		case <-n.soon:
			timer.Reset(pollLeast)
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			n.ask(ctx, timer)
		case <-timer.C:
			n.ask(ctx, timer)
		}
	}
}

// lost tells all lanes that the connection was lost, or closed for good.
func (n *Notifier) lost(s nats.Status) {
	why := nats.ErrDisconnected
	if s == nats.CLOSED {
		why = nats.ErrConnectionClosed
	}
	for stream := range watchedStreams {
		n.learn(stream, poll{began: time.Now(), why: why})
	}
}

// ask polls, and sets the timer of the next poll.
func (n *Notifier) ask(ctx context.Context, timer *time.Timer) {
	began, failed := time.Now(), false
	nc := n.q.js.Conn()
	for stream := range watchedStreams {
		if !nc.IsConnected() { // it may have been lost before watch began
			n.lost(nc.Status())
			break
		}
		p := n.look(ctx, stream)
		failed = failed || p.why != nil
		if p.why != nil && !nc.IsConnected() {
			n.lost(nc.Status())
		} else if ctx.Err() == nil && !n.blind[stream].Load() {
			n.learn(stream, p)
		}
	}
	pause := n.every
	if !failed { // a failed poll says nothing about how long polls take
		pause = max(pause, min(pollShare*time.Since(began), pollMost))
	}
	timer.Reset(pause)
}

// look asks which subjects of a stream hold messages of the entities.
func (n *Notifier) look(ctx context.Context, stream int) poll {
	p := poll{began: time.Now(), held: map[heldKey]bool{}}
	if n.blind[stream].Load() {
		return p
	}
	name, all, of := n.q.name(), n.q.m.AllWork(), n.q.m.WorkOf
	if stream == watchedDue {
		name, all, of = n.q.waiting(), n.q.m.AllDue(), n.q.m.DueOf
	}
	var filters []string
	n.mu.Lock()
	few := len(n.lanes) <= pollEach
	for entity := range n.lanes {
		if !few {
			break
		}
		if f, err := of(entity); err == nil {
			filters = append(filters, f)
		}
	}
	n.mu.Unlock()
	if !few {
		filters = []string{all}
	}
	for _, f := range filters {
		at, err := n.count(ctx, name, f, p.held)
		if api.Refused(err) {
			n.blind[stream].Store(true)
			n.rouseAll()
		}
		if err != nil {
			p.why = err
			return p
		}
		p.at = at
	}
	return p
}

// count adds the sources that a filter finds messages of, and returns the server's time.
func (n *Notifier) count(ctx context.Context, stream, filter string, held map[heldKey]bool) (at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, watchPatience)
	defer cancel()
	subjects, at, err := api.SubjectsAt(ctx, n.q.js, stream, filter)
	if err != nil {
		return at, api.Explain(n.q.js.Conn(), err, "ask which subjects of %s hold tasks", stream)
	}
	for s := range subjects {
		switch a, err := n.q.m.Parse(s); {
		case err != nil:
		case a.Kind == subject.Work:
			held[heldKey{a.Entity, a.Priority}] = true
		case a.Kind == subject.Due:
			held[heldKey{a.Entity, ""}] = true
		}
	}
	return at, nil
}

// learn records what is known of a stream, and wakes the sources that have messages.
func (n *Notifier) learn(stream int, p poll) {
	n.mu.Lock()
	defer n.mu.Unlock()
	last := n.polled[stream]
	turned := (last.why == nil) != (p.why == nil) || last.since.IsZero()
	p.since = last.since
	if turned {
		p.since = time.Now()
	}
	if p.why != nil {
		p.at, p.held = last.at, last.held
	}
	n.polled[stream] = p
	if p.why == nil {
		for key := range p.held {
			for l := range n.lanes[key.entity] {
				l.rouse(key.priority)
			}
		}
		for l := range n.awake {
			l.polledEmpty(stream, p)
		}
	}
	if !turned && !errors.Is(p.why, nats.ErrConnectionClosed) {
		return
	}
	for _, lanes := range n.lanes { // their health has changed
		for l := range lanes {
			l.Wake()
		}
	}
}

// rouseAll wakes all sources.
func (n *Notifier) rouseAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, lanes := range n.lanes {
		for l := range lanes {
			l.rouseBlind()
		}
	}
}

// last returns the outcome of the last poll of a stream.
func (n *Notifier) last(stream int) poll {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.polled[stream]
}

// ring subscribes to the subject of tasks.
func (n *Notifier) ring(subj string) *nats.Subscription {
	nc := n.q.js.Conn()
	if n.mute.Load() {
		return nil
	}
	if _, denied := denial.Why(nc, func(d denial.Denial) bool {
		return d.Op == denial.Subscribe && strings.Contains(d.Subject, "aee.work.")
	}); denied {
		n.mute.Store(true) // each further attempt is a line in the server's log
		return nil
	}
	sub, err := nc.ChanSubscribe(subj, n.rings)
	if err != nil {
		return nil
	}
	return sub
}
