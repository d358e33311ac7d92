package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/state"
)

// lane is the durable side of an agent while it is served: it draws tasks when
// there is room, keeps what it holds leased, and brings runs to their end.
type lane struct {
	host    *host
	cfg     *Durable
	codec   state.Codec
	noted   noter          // cfg.States, where it takes notes; else nil
	absence absenceChecker // cfg.States, where it can be asked cheaply; else nil
	queue   *jetstream.Lane
	// subject is the pattern of the entity's durable tasks.
	subject string
	tel     *laneTelemetry

	// ctx ends when nothing more may be written: after the drain.
	ctx          context.Context
	stop         context.CancelCauseFunc
	drawing      context.CancelFunc
	unwatch      func()
	drawn        chan struct{}  // closed when the drawing has ended
	work         sched.Group    // what goes on beside the agent's places
	tenders      sync.WaitGroup // lease renewal, sweeps, slots
	draining     atomic.Bool    // steps that end are handed on
	drainStarted chan struct{}  // closed when they are

	mu       sync.Mutex
	holds    map[*hold]struct{}
	runs     map[string]*Run // by run id: those that were claimed and have not ended
	enlisted map[string]*Run // those that were drawn, and are not claimed yet

	waiting       atomic.Int64 // drawn and not begun
	performing    atomic.Int64 // in a handler's hands
	finishing     atomic.Int64 // their place free, not off the queue yet
	pace          pace
	clock         serverClock
	slots         *slots // nil: no limit across the mesh
	waits         *waits // runs that wait for others
	counted       counted
	notes         notes
	share         *share
	down          atomic.Pointer[error]
	failing       atomic.Pointer[failure] // of the store of runs, the last time
	unreadableRun atomic.Pointer[failure] // a run that this worker cannot read, the last one
	loggedAt      atomic.Int64            // when that was logged
	unhealthy     bool                    // the lane was said not to work, by changed alone
}

// hold is a message that this worker has under a lease.
type hold struct {
	*jetstream.Delivery
	drawnAt time.Time
}

// finishingMax bounds what may be on its way to the end beside the agent's places.
const finishingMax = 256

// newLane prepares the durable side of h. It does no I/O.
func (h *host) newLane() (*lane, error) {
	cfg := h.node.cfg.Durable
	l := &lane{
		host: h, cfg: cfg, codec: cfg.Codec, tel: h.node.tel.lane,
		holds: map[*hold]struct{}{}, runs: map[string]*Run{}, enlisted: map[string]*Run{}, drawn: make(chan struct{}), drainStarted: make(chan struct{}),
	}
	if h.Seal != nil {
		l.codec.Seal = h.Seal
	}
	l.noted, _ = cfg.States.(noter)
	l.absence, _ = cfg.States.(absenceChecker)
	if h.MeshConcurrency > 0 && cfg.Slots == nil {
		return nil, fmt.Errorf("a limit of %d tasks in the whole mesh needs Durable.Slots", h.MeshConcurrency)
	}
	subject, err := h.node.subjects.WorkOf(h.Entity)
	if err != nil {
		return nil, err
	}
	l.subject = subject
	queue, err := cfg.Queue.Lane(h.Entity, jetstream.LaneOptions{Create: cfg.Create, Lease: cfg.Lease, Changed: l.onHealth, Dropped: l.onDropped})
	if err != nil {
		return nil, err
	}
	l.queue = queue
	l.ctx, l.stop = context.WithCancelCause(context.Background())
	l.waits = newWaits(l)
	l.share = newShare(l)
	if h.MeshConcurrency > 0 {
		l.slots = newSlots(l)
	}
	return l, nil
}

// openPatience is how long a worker that starts waits for its consumers.
const openPatience = 3 * time.Second

// openQueue makes the consumers. What keeps it from that now, the lane sees again, and
// reports, when it runs.
func (l *lane) openQueue() {
	ctx, cancel := context.WithTimeout(l.ctx, openPatience)
	defer cancel()
	if err := l.queue.Open(ctx); err != nil {
		l.host.log.Info("the durable lane is not available yet", "err", err)
	}
}

// start begins to draw.
func (l *lane) start() {
	ctx, cancel := context.WithCancel(l.ctx)
	l.drawing = cancel
	l.unwatch = l.tel.watch(l)
	go func() {
		defer close(l.drawn)
		if err := l.queue.Run(ctx, l.room, l.deliver); err != nil {
			l.host.log.Error("the durable lane has ended", "err", err)
			l.down.Store(&err)
		}
	}()
	l.tenders.Go(l.renew)
	l.tenders.Go(l.clock.tend(l))
	l.tenders.Go(l.listen)
	l.tenders.Go(l.waits.tend)
	if l.share.store != nil {
		l.tenders.Go(l.share.tend)
	}
	if l.cfg.Sweep > 0 {
		l.tenders.Go(l.sweeps)
		l.tenders.Go(l.compacts)
	}
	if l.slots != nil {
		l.tenders.Go(l.slots.tend)
	}
}

// stopDrawing takes no more tasks; what is held and not begun is given back by
// whoever closes the queue. Steps that end from now on are handed on.
func (l *lane) stopDrawing() {
	l.draining.Store(true)
	close(l.drainStarted)
	if l.drawing != nil { // it has started
		l.drawing()
		<-l.drawn
	}
	if l.slots != nil {
		close(l.slots.over)
	}
}

// nakUnbegun gives a task back that has not begun.
func (l *lane) nakUnbegun(t *Task, pause time.Duration) {
	if !t.claim() {
		return
	}
	r := t.run
	l.countWaiting(r, -1)
	if r.claimedEarly { // what is claimed is not what nobody has begun
		l.work.Go(func() { l.releaseClaimed(r) })
		return
	}
	r.mu.Lock()
	r.dropped = true
	r.mu.Unlock()
	l.unlist(r)
	l.nak(r.hold, pause)
}

// releaseRunning gives a run back that has not ended within the drain: what it has
// committed stays, and whoever gets it goes on at once. Its handler can write
// nothing any more.
func (l *lane) releaseRunning(t *Task, cause error) {
	if !t.claim() {
		return
	}
	t.stop(cause)
	l.work.Go(func() {
		r := t.run
		r.mu.Lock() // a step that is being written may end
		defer r.mu.Unlock()
		if r.end != nil {
			return
		}
		if r.cp.Load() != nil && r.rev > 0 {
			ctx, cancel := context.WithTimeout(l.ctx, closePatience/2)
			defer cancel()
			if err := r.release(ctx); err != nil && !errors.Is(err, ErrLost) {
				l.host.log.Warn("run not released", "run", r.id.Run, "err", err)
			}
		}
		if r.end == nil {
			r.stop(ErrLost)
			l.unlist(r)
			l.nak(r.hold, 0)
		}
	})
}

// closePatience is how long the last writes may take.
const closePatience = 5 * time.Second

// close waits until what has ended is written, and ends the rest.
func (l *lane) close() {
	done := make(chan struct{})
	go func() {
		l.work.Wait()
		close(done)
	}()
	timer := time.NewTimer(closePatience)
	defer timer.Stop()
	if !l.host.node.conn.IsClosed() {
		select {
		case <-done:
		case <-timer.C:
		}
	}
	l.stop(errStopped)
	<-done
	l.tenders.Wait()
	l.work.Wait() // what the tenders have begun meanwhile
	if l.unwatch != nil {
		l.unwatch()
	}
}

// errStopped is why a worker that has stopped writes nothing more.
var errStopped = envelope.Errorf(envelope.CodeUnavailable, "the worker has stopped")

// room is how many tasks there are places for. Places are shared with the live
// lane: a task that waits here could be done by another worker, so no more are
// drawn than can begin, except that short tasks are drawn a little ahead, and
// that one waits in the queue where live tasks leave no place free: the queue
// sees to it that each gets its turn.
func (l *lane) room() int {
	h := l.host
	if h.Leave || l.finishing.Load() >= finishingMax {
		return 0
	}
	free := h.Concurrency - int(h.active.Load())
	if l.pace.short() {
		free += min(h.Concurrency, 64)
	} else if free <= 0 && h.queue.Len() > int(l.waiting.Load()) {
		free = 1
	}
	if l.slots != nil {
		l.slots.nudge()
		free = min(free, l.slots.room())
	}
	return max(0, free-int(l.waiting.Load()))
}

// roomForRun reports whether a run can be taken over that another worker works on. It
// brings its slot along: that worker gives it back.
func (l *lane) roomForRun() bool {
	h := l.host
	return !l.draining.Load() && !h.Leave && l.finishing.Load() < finishingMax && h.Concurrency > int(h.active.Load()+l.waiting.Load())
}

// deliver takes a message. It runs on the lane's goroutine.
func (l *lane) deliver(d *jetstream.Delivery) {
	l.tel.delivered(l.host, d)
	l.dispatch(l.hold(d))
}

// hold keeps a message leased from now on.
func (l *lane) hold(d *jetstream.Delivery) *hold {
	hold := &hold{d, time.Now()}
	l.mu.Lock()
	l.holds[hold] = struct{}{}
	l.mu.Unlock()
	return hold
}

// dropHold forgets a message that is not ours any more. It says nothing to the
// server.
func (l *lane) dropHold(h *hold) {
	l.mu.Lock()
	delete(l.holds, h)
	l.mu.Unlock()
	l.queue.Wake()
}

// ack takes a message off the queue. Only what is stored may be acknowledged: a
// terminal or a parked record, or that there is nothing to do.
func (l *lane) ack(h *hold) {
	if err := h.Ack(); err != nil {
		l.host.log.Debug("acknowledgement not sent", "seq", h.Seq, "err", err)
	}
	l.dropHold(h)
}

// nak gives a message back.
func (l *lane) nak(h *hold, delay time.Duration) {
	if err := h.Nak(delay); err != nil {
		l.host.log.Debug("task not requeued", "seq", h.Seq, "err", err)
	}
	l.dropHold(h)
}

// claimed are the runs that this worker has.
func (l *lane) claimed() []*Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]*Run, 0, len(l.runs))
	for _, r := range l.runs {
		out = append(out, r)
	}
	return out
}

// enlist notes a run that was drawn, or returns the one that this worker has under
// its id: a worker that stood still gets a message several times, all at once.
func (l *lane) enlist(r *Run) *Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	if mine := l.runs[r.id.Run]; mine != nil {
		return mine
	}
	if mine := l.enlisted[r.id.Run]; mine != nil {
		return mine
	}
	l.enlisted[r.id.Run] = r
	return nil
}

// has is the run that this worker has or has drawn under an id.
func (l *lane) has(id string) *Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	if mine := l.runs[id]; mine != nil {
		return mine
	}
	return l.enlisted[id]
}

func (l *lane) run(id string) *Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[id]
}

// unlist takes a run off the books when it has ended here.
func (l *lane) unlist(r *Run) {
	l.mu.Lock()
	if l.runs[r.id.Run] == r {
		delete(l.runs, r.id.Run)
	}
	if l.enlisted[r.id.Run] == r {
		delete(l.enlisted, r.id.Run)
	}
	l.mu.Unlock()
	l.share.stored(r)
	l.host.running.remove(r.task)
	if s := r.task.span.span; s != nil && !r.wrote {
		s.End() // it goes on under another span
	}
}

// lost notes that another worker owns the run.
func (l *lane) lost(r *Run) {
	l.tel.lost(l.host)
	l.host.log.Warn("run lost to another worker", "run", r.id.Run, "id", r.task.Envelope.ID)
	r.task.claim()
	l.unlist(r)
	l.dropHold(r.hold)
}

// renew keeps the messages leased that this worker has, all of them from one
// timer. It also sees when this process stood still, or was cut off, for so
// long that others may have taken over.
func (l *lane) renew() {
	lease := l.queue.Lease()
	tick := time.NewTicker(lease / 3)
	defer tick.Stop()
	soon := time.NewTicker(min(lease/3, claimSoon))
	defer soon.Stop()
	reconnects := l.host.node.conn.Stats().Reconnects
	last := time.Now()
	for {
		select {
		case <-soon.C:
			l.writeClaims()
			continue
		case <-tick.C:
		case <-l.ctx.Done():
			return
		}
		now := time.Now()
		l.mu.Lock()
		for h := range l.holds {
			_ = h.InProgress() // if it gets lost, the next one may do
		}
		l.mu.Unlock()
		again := l.host.node.conn.Stats().Reconnects
		stood := max(now.Sub(last), now.Round(0).Sub(last.Round(0))) > lease
		for _, r := range l.claimed() {
			if stood || again != reconnects || now.Sub(time.Unix(0, r.seen.Load())) > 10*lease {
				l.work.Go(func() { r.verify(l.ctx) })
			}
		}
		last, reconnects = now, again
		if next := l.queue.Lease(); next != lease {
			lease = next
			tick.Reset(lease / 3)
		}
	}
}

// onHealth hears how the lane hears.
func (l *lane) onHealth(health jetstream.LaneHealth) {
	switch health.State {
	case jetstream.LaneWorking, jetstream.LaneStopped, jetstream.LaneStarting:
		level := slog.LevelInfo
		if l.unhealthy && health.State == jetstream.LaneWorking {
			level, l.unhealthy = slog.LevelWarn, false // whoever reads that it was deaf reads that it is no more
		}
		l.host.log.Log(l.ctx, level, "durable lane", "state", string(health.State))
	default:
		l.unhealthy = true
		l.host.log.Warn("durable lane", "state", string(health.State), "reason", health.Reason)
	}
}

// onDropped tells of what came as a delayed task and was none.
func (l *lane) onDropped(subject string, why error) {
	h := l.host
	h.counts.refused.Add(1)
	problem := envelope.Errorf(envelope.CodeInvalidEnvelope, "%s: %v", clip.Text(subject, 128), why)
	h.node.tel.refused(h, string(problem.Code))
	h.alert(salvage(&envelope.Envelope{}, h.Entity), problem)
}

// storeFailed notes that the store of runs does not answer. One line a second
// tells it, however many runs wait.
func (l *lane) storeFailed(err error) {
	now := time.Now()
	l.failing.Store(&failure{now, err})
	if last := l.loggedAt.Load(); now.UnixNano()-last > int64(time.Second) && l.loggedAt.CompareAndSwap(last, now.UnixNano()) {
		l.host.log.Warn("runs cannot be stored for now", "err", err)
	}
}

type failure struct {
	at  time.Time
	err error
}

func (l *lane) observe(p Point, id state.ID) {
	if l.cfg.Observe != nil {
		l.cfg.Observe(p, id)
	}
}

func connectionError(err error) bool {
	for _, e := range []error{nats.ErrDisconnected, nats.ErrConnectionReconnecting, nats.ErrTimeout, nats.ErrNoResponders} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
