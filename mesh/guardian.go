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
	"github.com/aeemesh/aeemesh/mesh/internal/holders"
	"github.com/aeemesh/aeemesh/mesh/internal/watch"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// A worker that has runs lets two other workers of its agent, its guardians, watch it. When
// the server says twice that the worker's own ping subject has no subscriber, a guardian
// removes the dead worker as owner of its runs, by a compare-and-swap of each record with
// the next epoch, and requeues the runs. So they continue after about half a second, and
// not when the lease on their messages ends. A worker without runs has no
// guardian and costs nothing.
//
// There are two guardians because one may die with the worker, or may itself have
// reconnected just now. The second watches less closely: it matters only if the first one
// dies too. A worker also watches its guardians, and finds another one when one dies. A worker that starts checks the owners of all runs once: the owner may have
// been the agent's only worker, or its guardians may have died at the same time.
//
// A guardian changes only the owner in a run's record. If the worker was not dead, it has
// lost its runs, as after the end of its lease: its next write fails.

// guardPayload asks the worker To to be a guardian. Without To it asks which worker would
// be one; the worker Not does not answer that.
type guardPayload struct {
	From string `json:"from"` // the instance that asks
	To   string `json:"to,omitempty"`
	Not  string `json:"not,omitempty"`
	Back int64  `json:"back_ms,omitempty"` // how soon it connects again: see Node.backAfter
	// Every is the time between two probes. 0: probeEvery.
	Every int64 `json:"every_ms,omitempty"`
}

const (
	// probeEvery is the time between two probes of a worker. Its second guardian, and a
	// worker that watches its guardians, let probeSeldom pass.
	probeEvery  = 200 * time.Millisecond
	probeSeldom = time.Second
	// probeAgain is the pause before the second probe of a worker whose first probe found
	// no responder: a worker that lost its connection reconnects at once. probeWait is how
	// soon the server answers the second probe of a worker that is gone.
	probeAgain = 300 * time.Millisecond
	probeWait  = 300 * time.Millisecond
	// aliveWait is how long an owner may take to answer a ping.
	aliveWait = time.Second
	// steadyFor is how long this process must be connected before it may declare a worker
	// dead: after an outage not all workers reconnect at the same time.
	steadyFor = 3 * time.Second
	// A guardian watches a worker for guardFor. The worker renews that every guardAgain
	// while it has runs. maxGuarded bounds the workers that one guardian watches.
	guardFor   = time.Minute
	guardAgain = guardFor / 3
	guardSoon  = 2 * time.Second // instead of guardAgain while no worker answers
	guardWait  = time.Second
	maxGuarded = 1024
	guardians  = 2 // of each worker
)

// guardian watches other workers, and finds guardians for this worker.
type guardian struct {
	lane   *lane
	others *watch.Watch
	caller string        // see prober
	needed chan struct{} // signals tend: a run was claimed and no guardian is known, or a watch has begun
	known  atomic.Bool   // there is a guardian, or tend will ask for one at its next tick

	mu    sync.Mutex
	by    []string             // the guardians of this worker
	until map[string]time.Time // until when the others are watched
}

func newGuardian(l *lane) *guardian {
	g := &guardian{lane: l, needed: make(chan struct{}, 1), until: map[string]time.Time{}}
	g.others = watch.New(watch.Config{
		Probe: g.probe, Dead: g.dead, Steady: l.host.node.steady.look,
		Wait: probeWait, Rate: probeRate, Most: maxGuarded,
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

// tend finds guardians while this worker has runs, and others in the place of guardians
// that stop answering.
func (g *guardian) tend() {
	l := g.lane
	g.caller = l.host.node.prober.join(g.others.Missing)
	defer l.host.node.prober.leave(g.caller)
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
		g.known.Store(true) // also if none is found: the ticker asks again
		if g.appoint() {
			again.Reset(guardAgain)
		} else {
			again.Reset(guardSoon)
		}
	}
}

// appoint renews the watch of the guardians, and finds others in the place of those that
// do not answer. It reports whether this worker has a guardian.
func (g *guardian) appoint() bool {
	g.mu.Lock()
	before := slices.Clone(g.by)
	g.mu.Unlock()
	var by []string
	for _, to := range before {
		if g.ask(to, "", len(by)) == to {
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
		if tried[to] = true; g.ask(to, "", len(by)) == to {
			by = append(by, to)
			g.keep(by)
		}
	}
	return len(by) > 0
}

// candidate returns a worker that may be another guardian: first one that this worker
// watches already, because two workers that watch each other cost the fewest probes.
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
	return g.ask("", not, 0)
}

// keep stores the guardians of this worker, and watches them.
func (g *guardian) keep(by []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.by = slices.Clone(by)
	for _, id := range by {
		g.watch(id, probeSeldom, 0)
	}
}

// watch watches a worker for guardFor. back is how long the worker may take to reconnect.
// It returns false if too many workers are watched. g.mu is held.
func (g *guardian) watch(id string, every, back time.Duration) bool {
	if !g.others.Add(id, every, probeAgain+back) {
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
	g.watch(owner, probeEvery, 0)
	g.mu.Unlock()
	l.guard()
	g.need() // starts the ticker, which ends the watches
}

// ask asks a worker to be a guardian beside others. With to "" it asks which worker would
// be one, except the worker not. It returns the worker that answers.
func (g *guardian) ask(to, not string, others int) string {
	h := g.lane.host
	p := guardPayload{From: h.id, To: to, Not: not, Back: h.node.backAfter().Milliseconds()}
	if others > 0 {
		p.Every = probeSeldom.Milliseconds()
	}
	e := envelope.New(envelope.TypeTask, h.Entity, h.Entity, intents.TaskGuard, wire.MustJSON(p))
	e.Priority = envelope.PriorityUrgent
	if err := h.sign(e); err != nil {
		return ""
	}
	reply, err := h.node.sender.RequestControl(g.lane.ctx, e, guardWait)
	if err != nil || reply.Type != envelope.TypeResult {
		return "" // no other worker: if this one dies, its runs resume when the lease of their messages ends
	}
	var answer offerAnswer
	_ = json.Unmarshal(reply.Payload, &answer)
	return answer.Instance
}

// asked answers a worker that looks for a guardian.
func (g *guardian) asked(t *Task) {
	h := g.lane.host
	var p guardPayload
	if json.Unmarshal(t.Envelope.Payload, &p) != nil || !holders.InstanceID.MatchString(p.From) || p.From == h.id || t.Envelope.From != h.Entity || g.lane.draining.Load() {
		return
	}
	switch {
	case p.To == "" && p.Not == h.id:
		return
	case p.To == "":
	case p.To == h.id:
		h.node.steady.look()
		g.mu.Lock()
		every := probeEvery
		if p.Every > 0 {
			every = time.Duration(min(max(probeEvery.Milliseconds(), p.Every), holders.MaxBack.Milliseconds())) * time.Millisecond
		}
		watched := g.watch(p.From, every, time.Duration(min(max(0, p.Back), holders.MaxBack.Milliseconds()))*time.Millisecond)
		g.mu.Unlock()
		if !watched {
			return
		}
		g.need() // starts the ticker, which ends the watches
	default:
		return
	}
	h.succeed(t, wire.MustJSON(offerAnswer{Instance: h.id}))
}

// expire stops watching workers that have not renewed their request.
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

// dead takes the runs from a dead worker and requeues them, and frees one of its slots
// for each run. The other slots end with their lease. If the worker is alive after all, a
// run may be executed twice until the worker notices; only for that time may the agent
// exceed its limit.
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
	for rec, err := range l.records.open(ctx) {
		if err != nil {
			l.host.log.Warn("runs of a dead worker not listed: they resume when its lease ends", "worker", instance, "err", err)
			break
		}
		if h, err := rec.Header(); err != nil || h.Owner != instance || !run.Carried(h.Status) {
			continue
		}
		switch err := l.requeueOrphan(ctx, rec, instance); {
		case err == nil:
			runs++
			l.tel.recovered(l.host)
		case !errors.Is(err, state.ErrChanged): // it has ended, or another worker was faster
			l.host.log.Warn("run of a dead worker not queued: it resumes when its lease ends", "run", rec.ID.Run, "worker", instance, "err", err)
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

// requeueOrphan removes a dead owner from a run's record and requeues the run. It fails with
// state.ErrChanged if that worker no longer owns the run.
func (l *lane) requeueOrphan(ctx context.Context, rec state.Record, owner string) error {
	c, err := l.records.read(rec)
	if err != nil {
		return err
	}
	if !run.Abandon(c, owner) {
		return state.ErrChanged
	}
	rev, _, err := l.records.put(ctx, rec.ID, rec.Revision, c)
	if err != nil {
		return err
	}
	return l.records.persist(ctx, func() error {
		_, err := l.records.requeue(ctx, c, rev)
		return err
	})
}

// probe probes an instance of the agent.
func (g *guardian) probe(instance string, again bool) {
	if to, err := g.lane.pingSubject(instance); err == nil {
		g.lane.host.node.prober.send(g.caller, instance, to, again)
	}
}

// ping pings an instance of the agent. It fails with nats.ErrNoResponders if the
// instance's process is not connected.
func (l *lane) ping(ctx context.Context, instance string, wait time.Duration) error {
	to, err := l.pingSubject(instance)
	if err != nil {
		return err
	}
	return l.host.node.ping(ctx, to, wait)
}

// pingSubject is the subject on which an instance of the agent alone is pinged.
func (l *lane) pingSubject(instance string) (string, error) {
	return micro.ControlSubject(micro.PingVerb, subject.ServiceName(l.host.Entity), instance)
}
