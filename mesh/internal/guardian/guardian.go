package guardian

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/mesh/internal/probe"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/watch"
)

// A Request asks the worker To to be a guardian. Without To it asks all workers except Not which
// of them can be one.
type Request struct {
	From string `json:"from"` // the instance that asks
	To   string `json:"to,omitempty"`
	Not  string `json:"not,omitempty"`
	Back int64  `json:"back_ms,omitempty"` // how soon it connects again: see [probe.Prober.BackAfter]
	// Every is the time between two probes. 0: [probe.Every].
	Every int64 `json:"every_ms,omitempty"`
}

// AnswerWait is how long a worker waits for the answer to a [Request].
const AnswerWait = time.Second

const (
	// probeSeldom is the time between two probes by the second guardian, and by a worker that
	// watches its guardians. The first guardian probes every [probe.Every].
	probeSeldom = time.Second
	// probeAgain is the pause before the second probe of a worker whose first probe found
	// no responder: a worker that lost its connection reconnects at once.
	probeAgain = 300 * time.Millisecond
	// A guardian watches a worker for guardFor. The worker renews that every guardAgain
	// while it has runs. maxGuarded bounds the workers that one guardian watches.
	guardFor   = time.Minute
	guardAgain = guardFor / 3
	guardSoon  = 2 * time.Second // instead of guardAgain while no worker answers
	maxGuarded = 1024
	guardians  = 2 // of each worker
)

// Config configures a [Guardian].
type Config struct {
	Entity   string // the agent
	Instance string // this worker of it
	Prober   *probe.Prober

	HasRuns func() bool // this worker has runs, so it needs guardians
	// Ask sends a request to the workers of the agent. It returns the instance that
	// answers within [AnswerWait], "" if none does.
	Ask func(ctx context.Context, request Request) (instance string)
	// Dead is called for a worker that is dead, on a goroutine of its own.
	Dead func(ctx context.Context, instance string)
}

// Guardian watches other workers, and finds guardians for this worker. Its methods may be
// called from many goroutines.
type Guardian struct {
	cfg    Config
	others *watch.Watch
	caller string        // see [probe.Prober]
	needed chan struct{} // signals tend: a run was claimed and no guardian is known, or a watch has begun
	known  atomic.Bool   // there is a guardian, or tend will ask for one at its next tick

	once    sync.Once // starts tend
	tending sched.Group

	mu      sync.Mutex
	by      []string             // the guardians of this worker
	until   map[string]time.Time // until when the others are watched
	charges map[string]bool      // the watched workers whose death is reported; a guardian of this worker is not, unless it asked for it
}

// New returns a Guardian that does nothing until it is started.
func New(cfg Config) *Guardian {
	g := &Guardian{cfg: cfg, needed: make(chan struct{}, 1), until: map[string]time.Time{}, charges: map[string]bool{}}
	g.others = watch.New(watch.Config{
		Probe: g.probe, Dead: g.dead, Steady: cfg.Prober.Steady,
		Wait: probe.Wait, Rate: probe.Rate, Most: maxGuarded,
	})
	return g
}

// Start starts the guardian's goroutines, unless they have been started. They end with
// ctx. An agent needs them from its first task on.
func (g *Guardian) Start(ctx context.Context) {
	g.once.Do(func() { g.tending.Go(func() { g.tend(ctx) }) })
}

// Wait returns when the goroutines have ended.
func (g *Guardian) Wait() { g.tending.Wait() }

// Need asks for a guardian if there is none. It does not block.
func (g *Guardian) Need() {
	if g.known.Load() {
		return
	}
	pause.Wake(g.needed)
}

// tend finds guardians while this worker has runs, and others in the place of guardians
// that stop answering.
func (g *Guardian) tend(ctx context.Context) {
	g.caller = g.cfg.Prober.Join(g.others.Missing)
	defer g.cfg.Prober.Leave(g.caller)
	var watching sync.WaitGroup
	watching.Go(func() { g.others.Run(ctx) })
	defer watching.Wait()
	again := time.NewTicker(guardAgain)
	again.Stop() // an idle worker has no timers
	for {
		select {
		case <-g.needed:
			again.Reset(guardAgain)
		case <-again.C:
		case <-ctx.Done():
			return
		}
		g.expire()
		g.known.Store(false) // before it looks: a run that is claimed meanwhile needs a guardian
		if !g.cfg.HasRuns() {
			g.keep(nil)
			if !g.guards() {
				again.Stop()
			}
			continue
		}
		g.known.Store(true) // also if none is found: the ticker asks again
		if g.appoint(ctx) {
			again.Reset(guardAgain)
		} else {
			again.Reset(guardSoon)
		}
	}
}

// appoint renews the watch of the guardians, and finds others in the place of those that
// do not answer. It reports whether this worker has a guardian.
func (g *Guardian) appoint(ctx context.Context) bool {
	g.mu.Lock()
	before := slices.Clone(g.by)
	g.mu.Unlock()
	var by []string
	for _, to := range before {
		if g.ask(ctx, to, "", len(by)) == to {
			by = append(by, to)
			g.keep(by)
		}
	}
	tried := map[string]bool{}
	for len(by) < guardians {
		to := g.candidate(ctx, by, tried)
		if to == "" || tried[to] || slices.Contains(by, to) {
			break
		}
		if tried[to] = true; g.ask(ctx, to, "", len(by)) == to {
			by = append(by, to)
			g.keep(by)
		}
	}
	return len(by) > 0
}

// candidate returns a worker that may be another guardian: first one that this worker
// watches already, because two workers that watch each other cost the fewest probes.
func (g *Guardian) candidate(ctx context.Context, by []string, tried map[string]bool) string {
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
	return g.ask(ctx, "", not, 0)
}

// keep stores the guardians of this worker, and watches them to replace those that die. It does
// not report their death, because it does not know how long they may take to reconnect.
func (g *Guardian) keep(by []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.by = slices.Clone(by)
	for _, id := range by {
		g.watch(id, probeSeldom, 0)
	}
}

// watch watches a worker for guardFor. back is how long the worker may take to reconnect.
// It returns false if too many workers are watched. g.mu is held.
func (g *Guardian) watch(id string, every, back time.Duration) bool {
	if !g.others.Add(id, every, probeAgain+back) {
		return false
	}
	g.until[id] = time.Now().Add(guardFor)
	return true
}

// LookAfter watches a worker that owns runs or holds slots, if the server says that its ping
// subject has no subscriber: it may have died while no other worker watched it. back is how long
// it may take to reconnect.
func (g *Guardian) LookAfter(ctx context.Context, owner string, back time.Duration) {
	if !probe.InstanceID.RE().MatchString(owner) || !errors.Is(g.cfg.Prober.Ping(ctx, g.cfg.Entity, owner), nats.ErrNoResponders) {
		return
	}
	g.mu.Lock()
	if g.watch(owner, probe.Every, back) {
		g.charges[owner] = true
	}
	g.mu.Unlock()
	g.Start(ctx)
	g.Need() // starts the ticker, which ends the watches
}

// ask asks a worker to be a guardian; others is the number of guardians before it. With to "" it
// asks which worker can be one, except the worker not. It returns the worker that answers.
func (g *Guardian) ask(ctx context.Context, to, not string, others int) string {
	r := Request{From: g.cfg.Instance, To: to, Not: not, Back: g.cfg.Prober.BackAfter().Milliseconds()}
	if others > 0 {
		r.Every = probeSeldom.Milliseconds()
	}
	return g.cfg.Ask(ctx, r)
}

// Asked handles the request of a worker that looks for a guardian. It reports whether this worker
// answers: it can be a guardian, or is one from now on.
func (g *Guardian) Asked(r Request) bool {
	switch {
	case !probe.InstanceID.RE().MatchString(r.From), r.From == g.cfg.Instance:
		return false
	case r.To == "":
		return r.Not != g.cfg.Instance
	case r.To != g.cfg.Instance:
		return false
	}
	g.cfg.Prober.Steady() // a later reconnect is noticed
	every := probe.Every
	if r.Every > 0 {
		every = bounded(r.Every, probe.Every)
	}
	g.mu.Lock()
	watched := g.watch(r.From, every, bounded(r.Back, 0))
	if watched {
		g.charges[r.From] = true
	}
	g.mu.Unlock()
	if watched {
		g.Need() // starts the ticker, which ends the watches
	}
	return watched
}

// bounded returns a time that another worker states, from least to [probe.MaxBack].
func bounded(ms int64, least time.Duration) time.Duration {
	return time.Duration(min(max(least.Milliseconds(), ms), probe.MaxBack.Milliseconds())) * time.Millisecond
}

// expire stops watching workers that have not renewed their request.
func (g *Guardian) expire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, until := range g.until {
		if time.Now().After(until) {
			delete(g.until, id)
			delete(g.charges, id)
			g.others.Remove(id)
		}
	}
}

// guards reports whether this worker watches any other.
func (g *Guardian) guards() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.until) > 0
}

// dead forgets a worker that is dead, and reports it if it asked for that, or owned runs.
func (g *Guardian) dead(ctx context.Context, instance string) {
	g.mu.Lock()
	charge := g.charges[instance]
	delete(g.until, instance)
	delete(g.charges, instance)
	i := slices.Index(g.by, instance)
	if i >= 0 {
		g.by = slices.Delete(g.by, i, i+1)
	}
	g.mu.Unlock()
	if i >= 0 {
		g.known.Store(false)
		g.Need()
	}
	if charge {
		g.cfg.Dead(ctx, instance)
	}
}

// probe probes an instance of the agent.
func (g *Guardian) probe(instance string, again bool) {
	if to, err := probe.Subject(g.cfg.Entity, instance); err == nil {
		g.cfg.Prober.Send(g.caller, instance, to, again)
	}
}
