package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// LaneOptions say how a worker draws tasks. The zero value is a worker that
// makes nothing.
type LaneOptions struct {
	// Create makes the entity's consumers where they are missing, and mends
	// them. Without it they are the operator's to make; the lane waits for them.
	Create bool

	// Lease is for consumers that are made: see [DefaultLease]. One that exists
	// keeps its own.
	Lease time.Duration

	// Heartbeat is how often the server says of an idle lane that it still
	// waits. After two and a half of them in silence the lane takes itself for
	// deaf and looks what is the matter. Default: 1 s.
	Heartbeat time.Duration

	// Check is how often the lane looks up how far it lags behind, and whether
	// somebody paused a consumer. Default: 5 s.
	Check time.Duration

	// Changed, if not nil, is told whenever a State in the lane's health
	// changes. Calls come one at a time, in order, from a goroutine of Run; it
	// should return soon.
	Changed func(LaneHealth)

	// Dropped, if not nil, is told of each message that came as a delayed task
	// and was none, and that was taken away: where it was, and why.
	Dropped func(subject string, why error)
}

// A Lane draws the durable tasks of one entity for one worker.
//
// It holds a consumer for each priority, shared with the other workers of the
// entity, and asks each for tasks. Of those that have some it draws by weight,
// 8 urgent : 4 high : 2 normal : 1 low, so that the low ones are never starved;
// one that has none holds a single request that the server answers as soon as
// there is a task. It also moves the entity's delayed tasks to [StreamWork] when
// they fall due.
//
// A lane that stops hearing (its consumer was deleted or paused, JetStream or a
// leader is away, permissions were taken) goes on trying, makes the consumer
// anew if it may, and says in its health what is the matter and since when.
type Lane struct {
	q      *Queue
	entity string
	opts   LaneOptions
	wake   chan struct{} // for the drawer: a place is free, a request has ended
	mend   chan struct{} // for the watcher: something is wrong, or was said

	mu      sync.Mutex
	sources []*source // the four priorities in the order of draws, then what falls due
	inbox   string    // of the run under way
	stopped bool      // no Run under way
	snag    error     // why the last delayed task could not be moved
	told    []LaneState

	// delivering is held over room and deliver, so that none is called after Run.
	delivering sync.Mutex
	closing    bool
}

// draws are the priorities, each with its weight, the most urgent first.
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
	specs, err := Consumers(q.m, entity, opts.Lease)
	if err != nil {
		return nil, fmt.Errorf("draw tasks: %w", err)
	}
	l := &Lane{q: q, entity: entity, opts: opts, wake: make(chan struct{}, 1), mend: make(chan struct{}, 1), stopped: true}
	for i, spec := range specs {
		s := &source{spec: spec, index: i, state: LaneStopped}
		s.stream, s.consumer = spec.StreamName(q.m), spec.Config.Durable
		s.next = apiPrefix(q.js) + "CONSUMER.MSG.NEXT." + s.stream + "." + s.consumer
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

// Open makes or looks for the entity's consumers, and says what is wrong with
// them: of those that are missing all. Run does so by itself; a worker that is
// started calls Open first, to fail at once where an operator has to do something.
func (l *Lane) Open(ctx context.Context) error {
	var missing []error
	for _, s := range l.sources {
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

// Run draws tasks until ctx ends, then it returns nil; what is on its way then
// is given back. It returns an error only if the connection is closed for good.
// A lane runs once at a time.
//
// room says how many tasks the worker has places for, now. deliver takes one; it
// must not block, and room must count it when it returns. Both are called from
// one goroutine at a time, room also from another one. Whenever a place becomes
// free the worker calls [Lane.Wake].
//
// The lane asks for no more tasks than there is room for, except that it keeps
// one request waiting at each priority that has none. A task that comes when
// there is no room is given back at once.
func (l *Lane) Run(ctx context.Context, room func() int, deliver func(*Delivery)) error {
	nc := l.q.js.Conn()
	status := nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(status)

	r := &laneRun{Lane: l, nc: nc, room: room, deliver: deliver, due: make(chan *Delivery, 2*dueBatch)}
	if err := r.open(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer func() {
		r.close(cancel)
		helpers.Wait()
		r.stop()
		r.tell()
	}()
	helpers.Go(func() { r.watch(ctx) })
	helpers.Go(func() { r.move(ctx) })

	tick := time.NewTicker(l.opts.Heartbeat / 2)
	defer tick.Stop()
	for {
		r.draw()
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		case <-tick.C:
			r.listen()
		case s := <-status:
			if s == nats.CLOSED {
				return fmt.Errorf("draw tasks of %s: %w", l.entity, nats.ErrConnectionClosed)
			}
			r.reconnected(s == nats.CONNECTED)
		}
	}
}

// Wake tells the lane that there may be room. It never blocks and costs little.
func (l *Lane) Wake() { signal(l.wake) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // somebody did so already
	}
}

// Lease is how long a worker may be silent about a task: the shortest of the
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

// laneRun is a lane while it runs.
type laneRun struct {
	*Lane
	nc      *nats.Conn
	sub     *nats.Subscription
	gone    chan struct{} // closed when the subscription has ended
	room    func() int
	deliver func(*Delivery)
	due     chan *Delivery // for the mover
}

func (r *laneRun) open() error {
	inbox := r.nc.NewInbox()
	r.mu.Lock()
	if !r.stopped {
		r.mu.Unlock()
		return fmt.Errorf("draw tasks of %s: the lane runs already", r.entity)
	}
	r.stopped, r.inbox = false, inbox
	for _, s := range r.sources {
		s.begin()
	}
	r.mu.Unlock()
	r.delivering.Lock()
	r.closing = false
	r.delivering.Unlock()

	sub, err := r.nc.Subscribe(inbox+".*", r.hear)
	if err != nil {
		r.stop()
		return fmt.Errorf("draw tasks of %s: %w", r.entity, err)
	}
	// What comes is bounded by what was asked for.
	_ = sub.SetPendingLimits(-1, -1)
	r.sub, r.gone = sub, make(chan struct{})
	sub.SetClosedHandler(func(string) { close(r.gone) })
	return nil
}

// close ends the subscription. What the server sent before it heard of that is
// given back rather than left to its lease.
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

// hear takes what comes in: tasks, and what the server says about requests.
func (r *laneRun) hear(msg *nats.Msg) {
	if msg.Reply == "" {
		r.status(msg)
		return
	}
	ack, err := parseAck(msg.Reply)
	if err != nil {
		return // not from the server
	}
	s := r.find(ack)
	if s == nil {
		return
	}
	d := &Delivery{
		Subject: msg.Subject, Priority: s.spec.Priority, Data: msg.Data, Header: msg.Header,
		Seq: ack.seq, Stored: ack.stored, Delivered: ack.delivered, AckSubject: msg.Reply, nc: r.nc,
	}
	r.mu.Lock()
	d.Lease = s.lease
	d.First = d.Delivered == 1 && !s.made.IsZero() && d.Stored.After(s.made.Add(madeSlack))
	s.delivered(ack.pending)
	ended := s.asked == 0
	r.mu.Unlock()
	if copied(d.Header) {
		_ = d.Term(errCopied.Error())
		if r.opts.Dropped != nil {
			r.opts.Dropped(d.Subject, errCopied)
		}
	} else if !r.take(s, d) {
		_ = d.Nak(0)
		r.mu.Lock()
		s.hot = true
		r.mu.Unlock()
	}
	if ended {
		r.Wake()
	}
}

// madeSlack is by how much the clocks of two servers may differ.
const madeSlack = 50 * time.Millisecond

// take hands a delivery over, if there is room.
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

func (l *Lane) find(a ackInfo) *source {
	for _, s := range l.sources {
		if s.consumer == a.consumer && s.stream == a.stream {
			return s
		}
	}
	return nil
}
