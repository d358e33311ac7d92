package mesh

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/guardian"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/share"
	"github.com/aeemesh/aeemesh/mesh/internal/stream"
	"github.com/aeemesh/aeemesh/mesh/internal/tender"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// lane is the durable side of an agent while it is served: it draws tasks when there
// is room, renews the leases of their messages, and stores the outcomes of runs.
type lane struct {
	*holdings
	deliveries *deliveries
	commands   *commands
	transfers  *transfers
	replies    *replyWriter
	streams    *stream.Lane

	stop       context.CancelCauseFunc // ends holdings.ctx
	unjoin     func()                  // ends the wait for the streams, see join
	drawing    context.CancelFunc
	unwatch    func()
	drawn      context.Context // ends when the drawing has ended
	endDrawn   context.CancelFunc
	tenders    sync.WaitGroup  // slots
	draining   atomic.Bool     // runs are released at the end of their step
	undrained  context.Context // ends when draining is set
	beginDrain context.CancelFunc

	performing atomic.Int64 // their handler runs
	finishing  atomic.Int64 // handler returned, message not acked
	pace       pace
	slots      taskSlots // nil: no limit across the mesh
	waits      *waits    // runs that wait for others
	guardian   *guardian.Guardian
	deaths     deaths
	tended     *tender.Lane
	down       atomic.Pointer[error]
	unhealthy  bool                 // logged as not working; used by onHealth alone
	logged     jetstream.LaneHealth // the last that was logged; used by onHealth alone
}

// finishingMax bounds the tasks whose handler has returned and whose outcome is still
// being stored.
const finishingMax = 256

// newLane prepares the durable side of h. It does no I/O.
func (h *host) newLane() (*lane, error) {
	cfg := h.node.cfg.Durable
	l := &lane{unjoin: func() {}}
	l.drawn, l.endDrawn = context.WithCancel(context.Background())
	l.undrained, l.beginDrain = context.WithCancel(context.Background())
	l.holdings = &holdings{
		host: h, cfg: cfg, records: newRecords(cfg, h.Entity, h.documents.Codec, h.log, h.node.conn, h.node.tel.Lane), tel: h.node.tel.Lane, clock: &h.node.clock, onFirst: func() { l.guardian.Start(l.ctx) },
		holds: map[*hold]struct{}{}, runs: map[string]*Run{}, enlisted: map[string]*Run{},
	}
	l.replies = &replyWriter{l.holdings}
	l.transfers = newTransfers(l)
	l.commands = &commands{holdings: l.holdings, lane: l, replies: l.replies}
	l.deliveries = &deliveries{holdings: l.holdings, lane: l, replies: l.replies}
	if h.MeshConcurrency > 0 && cfg.Slots == nil {
		return nil, fmt.Errorf("a limit of %d tasks in the whole mesh needs Durable.Slots", h.MeshConcurrency)
	}
	queue, err := cfg.Queue.Lane(h.Entity, jetstream.LaneOptions{Create: cfg.Create, Lease: cfg.Lease, Notifier: h.node.notifier, Busy: l.busy, Woken: l.woken, Changed: l.onHealth, Dropped: l.onDropped})
	if err != nil {
		return nil, err
	}
	l.queue, l.records.queue = queue, queue
	l.ctx, l.stop = context.WithCancelCause(context.Background())
	l.streams = l.newStreams()
	l.waits = newWaits(l)
	l.share = share.New(share.Config{Entity: h.Entity, States: cfg.States, Draining: l.draining.Load, Log: h.log})
	l.records.wrote = l.share.Wrote
	l.guardian = newGuardian(l)
	l.tended = newTended(l)
	if h.MeshConcurrency > 0 {
		l.slots = newSlots(l)
	}
	return l, nil
}

// openPatience is how long a starting worker waits for its consumers.
const openPatience = 3 * time.Second

// openQueue opens the consumers. If that fails now, the running lane retries it and
// reports the failure.
func (l *lane) openQueue(ctx context.Context) {
	opening, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	if err := l.queue.Open(opening); err != nil && ctx.Err() == nil {
		l.host.log.Info("the durable lane is not available yet", "err", err)
	}
}

// join starts the lane, now or when its streams exist. A worker may start before that: JetStream
// is down, the streams were not created, or the worker's NATS user has no permission to see them.
// Until [Durable].Ready is closed it serves live tasks like one without a durable lane.
// ctx ends when the agent is to stop.
func (l *lane) join(ctx context.Context) {
	if l.cfg.Available() {
		l.start(ctx)
		return
	}
	over, done := make(chan struct{}), make(chan struct{})
	l.unjoin = func() { close(over); <-done }
	go func() {
		defer close(done)
		select {
		case <-l.cfg.Ready:
			l.openQueue(ctx)
			l.start(ctx)
		case <-over:
		}
	}()
}

// start starts drawing tasks. It waits for the server's clock, until serving ends at most.
func (l *lane) start(serving context.Context) {
	ctx, cancel := context.WithCancel(l.ctx)
	l.drawing = cancel
	l.clock.begin(serving, l.cfg.Clock)
	var err error
	if l.unwatch, err = l.tel.Watch(l.host.Entity, l.queue.Health, l.clock.now); err != nil {
		l.host.log.Warn("metrics of the durable lane", "err", err)
	}
	go func() {
		defer l.endDrawn()
		if err := l.queue.Run(ctx, l.room, l.deliver); err != nil {
			l.host.log.Error("the durable lane has ended", "err", err)
			l.down.Store(&err)
		}
	}()
	l.host.node.tender.Add(l.tended)
	if l.slots != nil {
		l.tenders.Go(func() { l.slots.Run(l.ctx) })
	}
}

// woken starts what a lane needs while it draws tasks, until ctx ends: the lane sleeps
// again, or the worker stops. The lane draws once it returns: orders that wait, such as a
// pause, come before the tasks that wait with them.
func (l *lane) woken(ctx context.Context) {
	looking, cancel := context.WithTimeout(ctx, sched.LookTimeout)
	after, all, failed := l.commands.applyFromUrgent(looking, 0, nil)
	cancel()
	l.upkeep.Go(func() { l.commands.listen(ctx, after, !all || len(failed) > 0, failed) })
	l.upkeep.Go(func() { l.share.Tend(ctx) })
}

// stopDrawing stops drawing tasks. The caller closes the agent's queue, which naks the
// tasks that have not begun. From now on a run is released at the end of its step.
func (l *lane) stopDrawing() {
	l.unjoin()
	l.draining.Store(true)
	l.beginDrain()
	if l.drawing != nil { // it has started
		l.drawing()
		<-l.drawn.Done()
	}
	if l.slots != nil {
		l.slots.Close()
	}
}

// nakUnbegun naks the message of a task whose handler has not begun. A run that is
// already claimed is released instead.
func (r *Run) nakUnbegun(pause time.Duration) {
	l := r.lane
	if !r.task.claim() {
		return
	}
	l.deliveries.countWaiting(r, -1)
	if r.claimedEarly { // already claimed
		l.workOn(r.tally, func() { l.releaseClaimed(r) })
		return
	}
	r.mu.Lock()
	r.dropped = true
	r.mu.Unlock()
	l.unlist(r)
	l.nak(r.hold, pause)
}

// releaseRunning releases a run that has not ended within the drain, and naks its
// message: the next worker goes on from the last checkpoint. The handler can write
// nothing more.
func (r *Run) releaseRunning(cause error) {
	l := r.lane
	if !r.task.claim() {
		return
	}
	r.task.stop(cause)
	l.workOn(r.tally, func() { l.releaseClaimed(r) })
}

// closePatience bounds the last writes of a lane.
const closePatience = 5 * time.Second

// close waits for the outcomes that are being stored, for closePatience at most, and
// stops the lane. For what has not ended then, it waits for closePatience once more.
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
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-done
		l.host.node.tender.Remove(l.tended)
		l.waits.Close()
		l.tenders.Wait()
		l.upkeep.Wait()
		l.guardian.Wait()
		l.work.Wait() // work that these have started meanwhile
		if l.unwatch != nil {
			l.unwatch()
		}
	}()
	timer.Reset(closePatience)
	select {
	case <-ended:
	case <-timer.C:
		l.host.log.Error("the durable lane has not ended: a handler's change of a checkpoint does not return")
	}
}

// errStopped is the cause of contexts that end because the worker has stopped.
var errStopped = envelope.Errorf(envelope.CodeUnavailable, "the worker has stopped")

// room returns how many tasks to draw. Places are shared with the live lane. A task
// that waits here could be done by another worker, so no more are drawn than can
// begin, with two exceptions: short tasks are drawn a little ahead, and where live
// tasks take all places one durable task is drawn to wait in the agent's queue, which
// gives each its turn.
func (l *lane) room() int {
	h := l.host
	if h.SubmitOnly || l.finishing.Load() >= finishingMax {
		return 0
	}
	free := h.Concurrency - int(h.active.Load())
	if l.pace.short() {
		free += min(h.Concurrency, 64)
	} else if free <= 0 && h.queue.Len() > int(l.deliveries.waiting.Load()) {
		free = 1
	}
	if l.slots != nil {
		l.slots.Signal()
		free = min(free, l.slots.Room())
	}
	return max(0, free-int(l.deliveries.waiting.Load()))
}

// roomForRun reports whether this worker can take over a run from another worker. Such
// a run needs no free slot: the other worker releases its slot.
func (l *lane) roomForRun() bool {
	h := l.host
	return !l.draining.Load() && !h.SubmitOnly && l.finishing.Load() < finishingMax && h.Concurrency > int(h.active.Load()+l.deliveries.waiting.Load())
}

// deliver handles a message of the queue. It runs on the lane's goroutine.
func (l *lane) deliver(d *jetstream.Delivery) {
	l.tel.Delivered(l.host.Entity, d)
	hold := l.hold(d)
	defer hold.tally.add(-1)
	l.deliveries.dispatch(hold)
}

// onHealth logs health changes of the JetStream lane. Its parts change one after the other; what is
// said of the whole lane is logged once.
func (l *lane) onHealth(health jetstream.LaneHealth) {
	if health.State == l.logged.State && health.Reason == l.logged.Reason {
		return
	}
	l.logged = health
	switch health.State {
	case jetstream.LaneWorking, jetstream.LaneStopped, jetstream.LaneStarting:
		level := slog.LevelInfo
		if l.unhealthy && health.State == jetstream.LaneWorking {
			level, l.unhealthy = slog.LevelWarn, false // the recovery is logged at the level of the failure
		}
		l.host.log.Log(l.ctx, level, "durable lane", "state", string(health.State))
	default:
		l.unhealthy = true
		l.host.log.Warn("durable lane", "state", string(health.State), "reason", health.Reason)
	}
}

// onDropped alerts the operators about a message on the subject of scheduled tasks that
// is not a valid scheduled task.
func (l *lane) onDropped(subject string, why error) {
	h := l.host
	h.counts.refused.Add(1)
	problem := envelope.Errorf(envelope.CodeInvalidEnvelope, "%s: %v", clip.Text(subject, 128), why)
	h.node.tel.Refused(h.Entity, string(problem.Code))
	h.events.Alert(wire.Salvage(&envelope.Envelope{}, h.Entity), problem)
}
