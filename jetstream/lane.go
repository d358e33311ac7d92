package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/ack"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// LaneOptions configure how a worker draws tasks. With the zero value it creates no
// consumers.
type LaneOptions struct {
	// Create makes the lane create missing consumers of the entity, and update those that
	// differ. Without it an operator has to create them; the lane waits until they exist.
	Create bool

	// Lease is the AckWait of consumers that the lane creates: see [DefaultLease].
	// Existing consumers keep theirs.
	Lease time.Duration

	// Heartbeat is the interval at which the server confirms an idle request. After two
	// and a half intervals of silence the lane is considered deaf and checks its
	// consumer. Default: 1 s.
	Heartbeat time.Duration

	// Check is how often the lane reads how far it lags behind, and whether a consumer is
	// paused. Default: 5 s.
	Check time.Duration

	// Notifier lets the lane sleep while it has no tasks: see [Notifier]. It needs Create:
	// a lane whose consumers an operator creates stays awake, and reports what is wrong
	// with them. Nil: the lane never sleeps.
	Notifier *Notifier

	// Busy, if not nil, reports whether the worker has messages. Then an idle request ends
	// within half a lease: if the worker stands still, the server must not hand it again
	// the message whose lease has ended. It may be called at any time, and must return at
	// once.
	Busy func() bool

	// Woken, if not nil, is called from Run whenever the lane begins to draw: at the
	// start of a lane that does not sleep, and after each sleep. It must return soon. The
	// context ends when the lane sleeps again, or Run ends.
	Woken func(context.Context)

	// Changed, if not nil, is called whenever a State in the lane's health changes. Calls
	// come one at a time, in order, from a goroutine of Run; it must return soon.
	Changed func(LaneHealth)

	// Dropped, if not nil, is called with each message that the lane removed because no
	// user submitted it or it was not a delayed task: its subject, and the reason.
	Dropped func(subject string, why error)
}

// A Lane draws the durable tasks of one entity for one worker.
//
// It pulls from one consumer for each priority, which it shares with the other workers of
// the entity. From the priorities that have tasks it draws by weight, 8 urgent : 4 high :
// 2 normal : 1 low, so that low ones are never starved. On a priority without tasks it
// keeps one request open, which the server answers as soon as there is a task. It also
// moves the entity's delayed tasks to [StreamWork] when they fall due. With a [Notifier],
// a priority without tasks sleeps: the lane creates its consumer when the first task
// comes, and keeps no request open while there are none.
//
// A lane that receives no tasks (its consumer was deleted, paused or is ahead of its stream,
// JetStream or a leader is away, permissions were revoked) keeps trying, recreates or resets
// the consumer if it may, and reports the cause and its beginning in its health.
type Lane struct {
	q      *Queue
	entity string
	opts   LaneOptions
	wake   chan struct{} // wakes Run: there is room, or a request has ended
	mend   chan struct{} // wakes the watcher: a source failed, or the connection changed

	mu         sync.Mutex
	sources    []*source // the four priorities in the order of draws, then the delayed tasks
	inbox      string    // of the current Run
	stopped    bool      // no Run is active
	registered bool      // the entity is recorded in BucketLanes
	operated   bool      // this user may not create consumers: an operator does
	delayedErr error     // why the last delayed task could not be moved
	reported   []LaneState

	wakeSubs []wakeSub // of the sources that sleep; Run's

	// delivering is held during calls of room and deliver, so that neither is called
	// after Run.
	delivering sync.Mutex
	closing    bool
}

// draws lists the priorities with their weights, the most urgent first.
var draws = []struct {
	name   string
	weight int
}{{"urgent", 8}, {"high", 4}, {"normal", 2}, {"low", 1}}

// Lane returns the lane of an entity's worker. It does no I/O.
func (q *Queue) Lane(entity string, opts LaneOptions) (*Lane, error) {
	if opts.Heartbeat <= 0 {
		opts.Heartbeat = time.Second
	}
	if opts.Check <= 0 {
		opts.Check = 5 * time.Second
	}
	if !opts.Create {
		opts.Notifier = nil
	}
	specs, err := Consumers(q.m, entity, opts.Lease)
	if err != nil {
		return nil, fmt.Errorf("draw tasks: %w", err)
	}
	l := &Lane{q: q, entity: entity, opts: opts, wake: make(chan struct{}, 1), mend: make(chan struct{}, 1), stopped: true}
	for i, spec := range specs {
		s := &source{spec: spec, index: i, state: LaneStopped}
		s.stream, s.consumer = spec.StreamName(q.m), spec.Config.Durable
		s.next = api.Prefix(q.js) + "CONSUMER.MSG.NEXT." + s.stream + "." + s.consumer
		if i < len(draws) {
			if spec.Priority != draws[i].name {
				panic("jetstream: the consumers are not in the order of draws")
			}
			s.weight = draws[i].weight
		}
		l.sources = append(l.sources, s)
	}
	return l, nil
}

// Open creates or looks up the entity's consumers, and returns what is wrong with them;
// it names all that are missing. Of a lane that sleeps it records in [BucketLanes] that
// the entity has a durable lane, or creates the consumer of normal priority, which shows
// the same, where that bucket does not exist or may not be written. Run does the rest; a
// worker calls Open first at its start, to fail at once if an operator has to act.
func (l *Lane) Open(ctx context.Context) error {
	if l.opts.Notifier != nil {
		err := l.q.register(ctx, l.entity)
		if err == nil {
			l.mu.Lock()
			l.registered = true
			l.mu.Unlock()
			return nil
		}
		if errors.Is(err, ErrDenied) {
			// The user's permissions end at its own entity, where an operator makes the
			// consumers. Nothing else is asked for that such a user may not.
			l.opts.Notifier = nil
		}
	}
	var missing []error
	for _, s := range l.sources {
		if l.opts.Notifier != nil && s.spec.Priority != "normal" {
			continue
		}
		err := l.ensure(ctx, s)
		switch {
		case errors.Is(err, natsjs.ErrConsumerNotFound):
			missing = append(missing, err)
		case err != nil:
			return err
		}
	}
	return errors.Join(missing...)
}

// Run draws tasks until ctx ends; then it returns nil, and naks messages that still
// arrive. It returns an error only if the connection is closed for good. A lane can have
// one Run at a time.
//
// room returns how many more tasks the worker can take now. deliver takes one; it must
// not block, and room must count it once deliver has returned. One goroutine at a time
// calls deliver; room is also called from another one. The worker calls [Lane.Wake]
// whenever a place becomes free.
//
// The lane asks for no more tasks than there is room for, except for one open request on
// each priority that has no tasks. A task that arrives when there is no room is nakked at
// once.
func (l *Lane) Run(ctx context.Context, room func() int, deliver func(*Delivery)) error {
	r := &laneRun{Lane: l, nc: l.q.js.Conn(), room: room, deliver: deliver}
	if err := r.begin(); err != nil {
		return err
	}
	defer r.tell()
	defer r.stop()
	if n := l.opts.Notifier; n != nil {
		defer l.unsubscribeAll()
		l.subscribeSleeping()
		defer n.join(l)()
		n.poll()
	}
	for ctx.Err() == nil {
		if l.Asleep() {
			r.tell()
			select {
			case <-ctx.Done():
			case <-l.wake:
				if r.nc.IsClosed() {
					return r.closed()
				}
			}
		} else if err := r.stayAwake(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *laneRun) closed() error {
	return fmt.Errorf("draw tasks of %s: %w", r.entity, nats.ErrConnectionClosed)
}

// stayAwake draws tasks until ctx ends or all sources sleep.
func (r *laneRun) stayAwake(ctx context.Context) error {
	status := r.nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer r.nc.RemoveStatusListener(status)
	if err := r.open(); err != nil {
		return err
	}
	if n := r.opts.Notifier; n != nil {
		n.note(r.Lane, true)
		defer n.note(r.Lane, false)
	}
	ctx, cancel := context.WithCancel(ctx)
	if r.opts.Woken != nil {
		r.opts.Woken(ctx)
	}
	var helpers sync.WaitGroup
	defer func() {
		r.close(cancel)
		helpers.Wait()
	}()
	helpers.Go(func() { r.watch(ctx) })
	helpers.Go(func() { r.move(ctx) })

	tick := time.NewTicker(r.opts.Heartbeat / 2)
	defer tick.Stop()
	r.subscribeSleeping()
	for {
		r.draw()
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-tick.C:
			r.listen()
			if r.opts.Notifier != nil && r.sleepIdle() {
				return nil
			}
		case s := <-status:
			if s == nats.CLOSED {
				return r.closed()
			}
			r.reconnected(s == nats.CONNECTED)
		}
	}
}

// Asleep reports whether the lane has no tasks, and keeps no request open.
func (l *Lane) Asleep() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(l.sources, func(s *source) bool { return !s.asleep })
}

// Wake tells the lane that there may be room. It never blocks and is cheap.
func (l *Lane) Wake() { pause.Wake(l.wake) }

// Lease is how long a worker may go without renewing a task: the shortest AckWait of the
// entity's consumers, as far as the lane has seen them.
func (l *Lane) Lease() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease := time.Duration(0)
	for _, s := range l.sources[:len(draws)] {
		if s.lease > 0 && (lease == 0 || s.lease < lease) {
			lease = s.lease
		}
	}
	if lease == 0 {
		lease = l.sources[0].spec.Config.AckWait
	}
	return lease
}

// laneRun is the state of one Run.
type laneRun struct {
	*Lane
	nc      *nats.Conn
	sub     *nats.Subscription
	gone    chan struct{} // closed when the subscription has ended
	room    func() int
	deliver func(*Delivery)
	due     chan *Delivery // to the goroutine of move
}

// begin marks the lane as running.
func (r *laneRun) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		return fmt.Errorf("draw tasks of %s: the lane runs already", r.entity)
	}
	r.stopped = false
	for _, s := range r.sources {
		r.starts(s)
	}
	return nil
}

// open subscribes to the inbox of the answers to requests.
func (r *laneRun) open() error {
	inbox := api.Inbox(r.nc)
	r.mu.Lock()
	r.inbox = inbox
	r.mu.Unlock()
	r.delivering.Lock()
	r.closing = false
	r.delivering.Unlock()

	r.due = make(chan *Delivery, 2*dueBatch)
	sub, err := r.nc.Subscribe(inbox+".*", r.hear)
	if err != nil {
		return fmt.Errorf("draw tasks of %s: %w", r.entity, err)
	}
	// The number of messages is bounded by what was requested.
	_ = sub.SetPendingLimits(-1, -1)
	r.sub, r.gone = sub, make(chan struct{})
	gone := r.gone
	sub.SetClosedHandler(func(string) { close(gone) })
	return nil
}

// close ends the subscription. Messages that the server sent before it processed the
// unsubscribe are requeued, so that they need not wait for the end of their lease.
func (r *laneRun) close(helpers func()) {
	r.delivering.Lock()
	r.closing = true
	r.delivering.Unlock()
	helpers()
	if err := r.sub.Drain(); err == nil {
		bound := time.NewTimer(2 * time.Second)
		defer bound.Stop()
		select {
		case <-r.gone:
		case <-bound.C:
		}
	}
}

func (l *Lane) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	for _, s := range l.sources {
		s.asked, s.want = 0, 0
		s.become(LaneStopped, nil)
	}
}

// hear handles incoming messages: tasks, and status messages about requests.
func (r *laneRun) hear(msg *nats.Msg) {
	if msg.Reply == "" {
		r.status(msg)
		return
	}
	at, err := ack.Parse(msg.Reply)
	if err != nil {
		return // not from the server
	}
	s := r.find(at)
	if s == nil {
		return
	}
	d := &Delivery{
		Subject: msg.Subject, Priority: s.spec.Priority, Data: msg.Data, Header: msg.Header,
		Seq: at.Seq, Stored: at.Stored, Delivered: at.Delivered, AckSubject: msg.Reply, nc: r.nc,
	}
	r.mu.Lock()
	d.Lease = s.lease
	d.First = d.Delivered == 1 && !s.made.IsZero() && d.Stored.After(s.made.Add(clockSlack))
	late := s.delivered(at.Pending, r.opts.patience())
	ended := s.asked == 0
	r.mu.Unlock()
	if api.Copied(d.Header) {
		_ = d.Term(api.ErrCopied.Error())
		if r.opts.Dropped != nil {
			r.opts.Dropped(d.Subject, api.ErrCopied)
		}
	} else if wait := r.spoilt(s, d); wait > 0 {
		_ = d.Nak(wait)
		pause.Wake(r.mend)
	} else if !r.take(s, d) {
		if !late { // if it is late, another worker may have the message, and a nak would take it from that worker
			_ = d.Nak(0)
		}
		r.mu.Lock()
		s.hot = true
		r.mu.Unlock()
	}
	if ended {
		r.Wake()
	}
}

// clockSlack is how far the clocks of two servers may differ.
const clockSlack = 50 * time.Millisecond

// take passes a delivery to the worker or to the mover, and reports whether there was
// room.
func (r *laneRun) take(s *source, d *Delivery) bool {
	r.delivering.Lock()
	defer r.delivering.Unlock()
	switch {
	case r.closing:
		return false
	case s.weight == 0:
		select {
		case r.due <- d:
			return true
		default:
			return false
		}
	case r.room() <= 0:
		return false
	}
	r.deliver(d)
	return true
}

func (l *Lane) find(a ack.Subject) *source {
	for _, s := range l.sources {
		if s.consumer == a.Consumer && s.stream == a.Stream {
			return s
		}
	}
	return nil
}
