package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/watch"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// A worker that has runs lets two other workers of its agent, its guardians, watch it. When
// the server says that nobody listens to the worker's own ping subject any more, twice,
// a guardian abandons the runs that the dead worker owned: in each record, by
// compare-and-swap, with the next epoch; and queues them. So they go on within half a
// second, and not when the lease on their messages ends. A worker without runs needs no
// guardian and costs nothing.
//
// Of two guardians one may die with the worker, or have just connected again itself. A
// worker watches its guardians in turn, and finds another one when one dies. A worker that
// starts looks once after the owners of all runs: those of an agent's only worker, or of
// workers that died at once, have no guardian that lives.
//
// A guardian decides about nothing but the owner that a record names. A dead worker that
// lives after all has lost its runs, as after its lease: its next write fails.

// guardPayload is the request. Without To it asks which worker would do it, but for Not.
type guardPayload struct {
	From string `json:"from"` // the instance that asks
	To   string `json:"to,omitempty"`
	Not  string `json:"not,omitempty"`
	Back int64  `json:"back_ms,omitempty"` // how soon it connects again: see Node.backAfter
}

const (
	// probeEvery is the time between two probes of a worker. probeAgain is the pause
	// before the second probe of one that has no responder: a worker that lost its
	// connection connects again at once.
	probeEvery = 200 * time.Millisecond
	probeAgain = 300 * time.Millisecond
	// probeWait bounds a probe: one that was under way when the worker died gets no answer.
	probeWait = 300 * time.Millisecond
	// aliveWait is how long an owner may take to say that it lives.
	aliveWait = time.Second
	// steadyFor is how long this process must be connected before it takes a worker for
	// dead: after an outage not all connect again at the same time.
	steadyFor = 3 * time.Second
	// A guardian watches for guardFor, and is asked again every guardAgain while there
	// are runs. maxGuarded bounds the workers that it watches.
	guardFor   = time.Minute
	guardAgain = guardFor / 3
	guardSoon  = 2 * time.Second // where no worker answers
	guardWait  = time.Second
	maxGuarded = 1024
	guardians  = 2 // of each worker
)

// guardian is what a worker does for others, and asks of them.
type guardian struct {
	lane   *lane
	others *watch.Watch
	needed chan struct{} // a run was claimed, and no guardian is known
	known  atomic.Bool   // there is a guardian

	mu    sync.Mutex
	by    []string             // the guardians of this worker
	until map[string]time.Time // until when the others are watched
}

func newGuardian(l *lane) *guardian {
	g := &guardian{lane: l, needed: make(chan struct{}, 1), until: map[string]time.Time{}}
	g.others = watch.New(watch.Config{
		Probe: func(ctx context.Context, instance string) bool {
			return !errors.Is(l.ping(ctx, instance, probeWait), nats.ErrNoResponders)
		},
		Dead: g.dead, Steady: l.host.node.steady.look,
		Every: probeEvery, Rate: probeRate, Most: maxGuarded,
	})
	return g
}

// need asks for a guardian if there is none. It does not block.
func (g *guardian) need() {
	if g.known.Load() {
		return
	}
	select {
	case g.needed <- struct{}{}:
	default:
	}
}

// tend finds a guardian when there are runs, and another one when that does not answer.
func (g *guardian) tend() {
	l := g.lane
	var watching sync.WaitGroup
	watching.Go(func() { g.others.Run(l.ctx) })
	defer watching.Wait()
	again := time.NewTicker(guardAgain)
	again.Stop() // an idle worker has no timers
	for {
		select {
		case <-g.needed:
			again.Reset(guardAgain)
		case <-again.C:
		case <-l.ctx.Done():
			return
		}
		g.expire()
		if len(l.claimed()) == 0 {
			g.keep(nil)
			if !g.guards() {
				again.Stop()
			}
			g.known.Store(false)
			continue
		}
		g.known.Store(true) // where there is none, the ticker asks again
		if g.appoint() {
			again.Reset(guardAgain)
		} else {
			again.Reset(guardSoon)
		}
	}
}

// appoint asks the guardians to go on, and finds others in the place of those that do not
// answer. It reports whether there is one.
func (g *guardian) appoint() bool {
	g.mu.Lock()
	before := slices.Clone(g.by)
	g.mu.Unlock()
	var by []string
	for _, to := range before {
		if g.ask(to, "") == to {
			by = append(by, to)
			g.keep(by)
		}
	}
	tried := map[string]bool{}
	for len(by) < guardians {
		to := g.candidate(by, tried)
		if to == "" || tried[to] || slices.Contains(by, to) {
			break
		}
		if tried[to] = true; g.ask(to, "") == to {
			by = append(by, to)
			g.keep(by)
		}
	}
	return len(by) > 0
}

// candidate returns a worker that may be another guardian: at first one that this worker
// watches anyway, so that two that watch one another cost as little as possible.
func (g *guardian) candidate(by []string, tried map[string]bool) string {
	g.mu.Lock()
	for id := range g.until {
		if !tried[id] && !slices.Contains(by, id) {
			g.mu.Unlock()
			return id
		}
	}
	g.mu.Unlock()
	not := ""
	if len(by) > 0 {
		not = by[0]
	}
	return g.ask("", not)
}

// keep notes the guardians of this worker, and watches them.
func (g *guardian) keep(by []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.by = slices.Clone(by)
	for _, id := range by {
		g.watch(id, 0)
	}
}

// watch watches a worker for a while, which connects again so soon. It reports false where
// too many are watched. g.mu is held.
func (g *guardian) watch(id string, back time.Duration) bool {
	if !g.others.Add(id, probeAgain+back) {
		return false
	}
	g.until[id] = time.Now().Add(guardFor)
	return true
}

// lookAfter watches a worker that owns runs, if it does not answer: it may have died while
// no worker was there to miss it.
func (g *guardian) lookAfter(owner string) {
	l := g.lane
	if !errors.Is(l.ping(l.ctx, owner, aliveWait), nats.ErrNoResponders) {
		return
	}
	g.mu.Lock()
	g.watch(owner, 0)
	g.mu.Unlock()
	l.guard()
	g.need() // so that it looks at the time
}

// ask asks a worker to be the guardian; to "" asks which one would, but for the worker not.
// It returns the worker that answers.
func (g *guardian) ask(to, not string) string {
	h := g.lane.host
	e := envelope.New(envelope.TypeTask, h.Entity, h.Entity, intents.TaskGuard, mustJSON(guardPayload{From: h.id, To: to, Not: not, Back: h.node.backAfter().Milliseconds()}))
	e.Priority = envelope.PriorityUrgent
	if err := h.sign(e); err != nil {
		return ""
	}
	reply, err := h.node.askWorkers(g.lane.ctx, e, guardWait)
	if err != nil || reply.Type != envelope.TypeResult {
		return "" // a worker that is alone: the lease on its messages ends
	}
	var answer offerAnswer
	_ = json.Unmarshal(reply.Payload, &answer)
	return answer.Instance
}

// asked answers a worker that asks for a guardian.
func (g *guardian) asked(t *Task) {
	h := g.lane.host
	var p guardPayload
	if json.Unmarshal(t.Envelope.Payload, &p) != nil || p.From == "" || p.From == h.id || t.Envelope.From != h.Entity || g.lane.draining.Load() {
		return
	}
	switch {
	case p.To == "" && p.Not == h.id:
		return
	case p.To == "":
	case p.To == h.id:
		h.node.steady.look()
		g.mu.Lock()
		watched := g.watch(p.From, time.Duration(min(max(0, p.Back), maxBack.Milliseconds()))*time.Millisecond)
		g.mu.Unlock()
		if !watched {
			return
		}
		g.need() // so that it looks at the time
	default:
		return
	}
	h.succeed(t, mustJSON(offerAnswer{Instance: h.id}))
}

// expire watches those no more that have not asked again.
func (g *guardian) expire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, until := range g.until {
		if time.Now().After(until) {
			delete(g.until, id)
			g.others.Remove(id)
		}
	}
}

// guards reports whether this worker watches any other.
func (g *guardian) guards() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.until) > 0
}

// dead abandons the runs of a dead worker. For each it frees one of the worker's slots: should
// that one live after all, the limit holds for all but this one run, which may be in two
// places until the worker finds out. The other slots end with their lease.
func (g *guardian) dead(ctx context.Context, instance string) {
	l := g.lane
	g.mu.Lock()
	delete(g.until, instance)
	i := slices.Index(g.by, instance)
	if i >= 0 {
		g.by = slices.Delete(g.by, i, i+1)
	}
	g.mu.Unlock()
	if i >= 0 {
		g.known.Store(false)
		g.need()
	}
	runs := 0
	for rec, err := range l.open(ctx) {
		if err != nil {
			l.host.log.Warn("runs of a dead worker not listed: they go on when its lease ends", "worker", instance, "err", err)
			break
		}
		if h, err := rec.Header(); err != nil || h.Owner != instance || !run.Carried(h.Status) {
			continue
		}
		switch err := l.abandon(ctx, rec, instance); {
		case err == nil:
			runs++
			l.tel.recovered(l.host)
		case !errors.Is(err, state.ErrChanged): // it has ended, or another worker was faster
			l.host.log.Warn("run of a dead worker not queued: it goes on when its lease ends", "run", rec.ID.Run, "worker", instance, "err", err)
		}
	}
	if runs == 0 {
		return
	}
	l.host.log.Warn("worker died: its runs go on", "worker", instance, "runs", runs)
	if l.slots != nil {
		if err := l.cfg.Slots.Free(ctx, l.host.Entity, instance, runs); err != nil {
			l.host.log.Warn("slots of a dead worker not freed: their lease ends them", "worker", instance, "err", err)
		}
	}
}

// abandon takes a run from a dead owner and queues it. It fails with state.ErrChanged
// where that one does not own it any more.
func (l *lane) abandon(ctx context.Context, rec state.Record, owner string) error {
	c, err := l.codec.Read(rec)
	if err != nil {
		return err
	}
	if !run.Abandon(c, owner) {
		return state.ErrChanged
	}
	rev, _, err := l.put(ctx, rec.ID, rec.Revision, c)
	if err != nil {
		return err
	}
	return l.persist(ctx, func() error {
		_, err := l.requeueWaiting(ctx, c, rev)
		return err
	})
}

// ping asks an instance of the agent for a sign of life. It fails with
// nats.ErrNoResponders where its process is not connected.
func (l *lane) ping(ctx context.Context, instance string, wait time.Duration) error {
	to, err := micro.ControlSubject(micro.PingVerb, subject.ServiceName(l.host.Entity), instance)
	if err != nil {
		return err
	}
	return l.host.node.ping(ctx, to, wait)
}
