package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// waits knows parked runs of the entity that wait for answers or a time, and wakes
// them: those that this worker parked and those that it found in the store. It
// subscribes to the reply subjects and sets timers; a missed answer is found by the
// next check of all runs. Every worker of the entity may watch a run; the
// compare-and-swap lets one of them wake it.
type waits struct {
	l      *lane
	checks *sched.Crew // of single runs

	mu   sync.Mutex
	runs map[string]*dormant // by run id; nil after close
}

// maxChecks bounds the single checks that wait. Beyond it the tender checks all runs.
const maxChecks = 256

// dormant is a parked run that is watched.
type dormant struct {
	rev   uint64 // of its record
	subs  []*nats.Subscription
	timer *time.Timer   // nil: the run wakes at no set time
	again *time.Timer   // for the next check
	pause time.Duration // that again is set to
}

// A message on a reply subject may arrive before the stream has stored it, and a timer
// may fire early by a clock that is corrected later: the check then finds nothing. So
// checks are repeated after recheckFirst, and after four times as long each time, up to
// recheckLast. An answer that was published just before the subscription is found by
// one check after recheckNew.
const (
	recheckFirst = 20 * time.Millisecond
	recheckLast  = 6 * time.Second
	recheckNew   = 2 * time.Second
)

// maxWatched bounds the runs whose answers a worker subscribes to. Runs beyond it are
// checked with each sweep.
const maxWatched = 4096

func newWaits(l *lane) *waits {
	return &waits{l: l, checks: sched.NewCrew(1, maxChecks), runs: map[string]*dormant{}}
}

// checkSoon has a run checked on another goroutine. It does not block.
func (w *waits) checkSoon(run string) {
	if !w.checks.Go(func() { w.check(run) }) {
		w.l.host.node.tender.checkAll(w.l)
	}
}

// check wakes a run that has a reason to wake, and watches it otherwise.
func (w *waits) check(run string) {
	ctx, cancel := context.WithTimeout(w.l.ctx, storeTimeout)
	defer cancel()
	err := w.wakeIfDue(ctx, state.ID{Entity: w.l.host.Entity, Run: run})
	if err == nil || w.l.ctx.Err() != nil {
		return
	}
	w.l.host.log.Warn("waiting run not checked", "run", run, "err", err)
	if w.l.records.temporary(err) {
		w.l.host.node.tender.checkAll(w.l)
	}
}

func (w *waits) wakeIfDue(ctx context.Context, id state.ID) error {
	rec, err := w.l.cfg.States.Get(ctx, id)
	if err != nil {
		w.remove(id.Run)
		if errors.Is(err, state.ErrNotFound) {
			return nil
		}
		return err
	}
	c, err := w.l.records.read(rec)
	if err != nil || !run.Waits(c) {
		w.remove(id.Run)
		return err
	}
	w.watch(rec, c) // before the check, so that no answer between the two is missed
	why, err := w.l.reasonToWake(ctx, c)
	if err != nil || why == "" {
		return err
	}
	switch err := w.l.wakeUp(ctx, rec, c, why); {
	case err == nil:
		w.remove(id.Run)
	case errors.Is(err, state.ErrChanged): // by the worker that woke it first, or by a command
		w.checkSoon(id.Run)
	default:
		return err
	}
	return nil
}

// watch subscribes to the answers that a run waits for and sets its timer.
func (w *waits) watch(rec state.Record, c *state.Checkpoint) {
	id := rec.ID.Run
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.runs[id]
	if w.runs == nil || s != nil && s.rev == rec.Revision || s == nil && len(w.runs) >= maxWatched {
		return
	}
	pause := recheckNew
	if s != nil { // an answer that the last revision waits for may not be stored yet
		pause = min(pause, s.pause)
	}
	s.stop()
	s = &dormant{rev: rec.Revision, pause: pause}
	w.runs[id] = s
	for _, wait := range c.Mesh.Waits {
		if wait.Void {
			continue
		}
		to, err := w.l.host.node.subjects.Reply(wait.Entity, wait.TaskID)
		if err != nil {
			continue
		}
		sub, err := w.l.host.node.conn.Subscribe(to, func(*nats.Msg) { w.checkRepeatedly(id) })
		if err != nil {
			w.l.host.log.Debug("answers not subscribed to", "run", id, "err", err)
			continue // the sweep checks the run
		}
		s.subs = append(s.subs, sub)
	}
	s.again = time.AfterFunc(s.pause, func() { w.recheck(id, s) })
	if at := run.Earliest(c, c.Mesh.WakeAt); !at.IsZero() {
		s.timer = time.AfterFunc(time.Until(w.l.clock.local(at))+run.ClockSlack, func() { w.checkRepeatedly(id) })
	}
}

// checkRepeatedly checks a run now and, with growing pauses, a few times more: a
// message has come on a reply subject, or the run's time has.
func (w *waits) checkRepeatedly(run string) {
	w.mu.Lock()
	if s := w.runs[run]; s != nil {
		s.pause = recheckFirst
		s.again.Reset(s.pause)
	}
	w.mu.Unlock()
	w.checkSoon(run)
}

func (w *waits) recheck(run string, s *dormant) {
	w.mu.Lock()
	known := w.runs[run] == s
	if s.pause *= 4; known && s.pause <= recheckLast {
		s.again.Reset(s.pause)
	}
	w.mu.Unlock()
	if known {
		w.checkSoon(run)
	}
}

func (s *dormant) stop() {
	if s == nil {
		return
	}
	s.again.Stop()
	for _, sub := range s.subs {
		_ = sub.Unsubscribe() // the connection may be gone
	}
	if s.timer != nil {
		s.timer.Stop()
	}
}

func (w *waits) remove(run string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[run].stop()
	delete(w.runs, run)
}

func (w *waits) close() {
	w.checks.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.runs {
		s.stop()
	}
	w.runs = nil
}

// reasonToWake returns why a waiting run goes on, "" while it waits.
func (l *lane) reasonToWake(ctx context.Context, c *state.Checkpoint) (string, error) {
	now := l.clock.now()
	if why := run.Due(c, now); why != "" {
		return why, nil
	}
	for _, wait := range c.Mesh.Waits {
		if wait.Void {
			continue
		}
		answer, err := l.host.node.answerTo(ctx, wait, "")
		if err != nil {
			return "", err
		}
		if answer != nil {
			return clip.Text(wait.Entity, 128) + " has answered", nil
		}
		if run.Expired(wait, now) {
			return "no answer of " + clip.Text(wait.Entity, 128) + " in time", nil
		}
	}
	return "", nil
}

// wakeUp records that a waiting run goes on, and requeues its message.
func (l *lane) wakeUp(ctx context.Context, rec state.Record, c *state.Checkpoint, why string) error {
	run.Wake(c, why)
	rev, _, err := l.records.put(ctx, rec.ID, rec.Revision, c)
	if err != nil {
		return err
	}
	return l.records.persist(ctx, func() error {
		_, err := l.records.requeue(ctx, c, rev)
		return err
	})
}

// answerTo returns the first valid answer to a task: a terminal envelope of the task's
// addressee that fits the requested schema and was stored in time. It skips invalid
// answers, and returns nil if there is no valid one. corr may be "".
func (n *Node) answerTo(ctx context.Context, w state.Wait, corr string) (*storedAnswer, error) {
	for after := uint64(0); ; {
		msg, err := n.cfg.Durable.Replies.Next(ctx, w.Entity, w.TaskID, after)
		switch {
		case errors.Is(err, jetstream.ErrNotFound):
			return nil, nil
		case err != nil:
			return nil, err
		case !w.Until.IsZero() && msg.Time.After(w.Until):
			return nil, nil // as are all later answers
		}
		after = msg.Seq
		reply, err := n.answers.Stored(w.Entity, w.TaskID, corr, "", &nats.Msg{Data: msg.Data, Header: msg.Header}, nil)
		if err != nil {
			n.log.Debug("invalid reply ignored", "task", w.TaskID, "from", w.Entity, "err", err)
			continue
		}
		if reply.Type.Terminal() && n.acceptsAnswer(w.Schema, reply) {
			return &storedAnswer{reply, msg.Seq, msg.Time}, nil
		}
	}
}

// acceptsAnswer reports whether an answer fits the schema, and logs one that does not.
func (n *Node) acceptsAnswer(schema string, reply *envelope.Envelope) bool {
	err := requires.Fits(json.RawMessage(schema), reply)
	if err != nil {
		n.log.Info("answer does not fit requires.result_schema and does not count", "id", reply.ID, "task", reply.ReplyTo, "corr", reply.Corr, "from", reply.From, "err", err)
	}
	return err == nil
}
