package tender

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// Config configures a [Tender].
type Config struct {
	Log *slog.Logger
	// Reconnects counts the reconnects to the server: each may have hidden an answer.
	Reconnects func() uint64
	// States is the store of runs, from which ended runs are removed.
	States jetstream.Sweeper
	// OpenAll yields the runs of all entities that have not ended; nil: they can be read
	// entity by entity only.
	OpenAll func(context.Context) iter.Seq2[state.Record, error]
	// Sweep is the interval of the sweeps; 0 or less: no sweep, and no ended run is removed.
	Sweep time.Duration
	// Beside runs while there is a lane.
	Beside func(context.Context)
	// Filled gets the used fraction of the store.
	Filled func(used float64)
}

// A Lane is the durable lane of one agent. Its functions may be called at the same time.
type Lane struct {
	Entity   string
	Instance string // this worker, as the owner of runs
	// Open yields the entity's runs that have not ended.
	Open func(context.Context) iter.Seq2[state.Record, error]
	// Owns reports whether this worker owns a run.
	Owns func(run string) bool
	// Wake wakes a run that waits, if it has a reason to wake.
	Wake func(run string)
	// LookAfter finds out whether another worker, which owns runs, is alive.
	LookAfter func(owner string)
	// Sweep begins a sweep: run requeues a run if it needs it, and done ends the sweep;
	// complete says that all runs were read.
	Sweep func() (run func(context.Context, state.Record) error, done func(complete bool))
}

// A Tender does the work for the lanes of one node. Its methods may be called from many goroutines.
type Tender struct {
	cfg Config

	mu     sync.Mutex
	lanes  map[*Lane]struct{}
	unseen map[*Lane]struct{} // lanes whose waiting runs have to be looked for
	soon   chan struct{}      // signals survey: a lane was added to unseen
	end    func()
}

// New returns a tender without lanes.
func New(cfg Config) *Tender {
	return &Tender{cfg: cfg, lanes: map[*Lane]struct{}{}, unseen: map[*Lane]struct{}{}, soon: make(chan struct{}, 1)}
}

// For up to surveyEach entities the runs are read entity by entity, so that a process with
// few agents does not read all runs of a large mesh.
const surveyEach = 4

// Add adds a lane. The first one starts the goroutines.
func (t *Tender) Add(l *Lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lanes[l] = struct{}{}
	if len(t.lanes) == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { t.cfg.Beside(ctx) })
		running.Go(func() { t.survey(ctx) })
		if t.cfg.Sweep > 0 {
			running.Go(func() { t.sweeps(ctx, t.cfg.Sweep) })
			running.Go(func() { t.deleteEnded(ctx) })
		}
		t.end = func() {
			cancel()
			running.Wait()
		}
	}
	t.look(l)
}

// Remove removes a lane, if it was added. The last one ends the goroutines, for which Remove waits.
func (t *Tender) Remove(l *Lane) {
	t.mu.Lock()
	delete(t.unseen, l)
	if _, ok := t.lanes[l]; !ok {
		t.mu.Unlock()
		return
	}
	end := func() {}
	if delete(t.lanes, l); len(t.lanes) == 0 {
		end = t.end
	}
	t.mu.Unlock()
	end()
}

// CheckAll requests a check of all waiting runs of a lane. It does not block.
func (t *Tender) CheckAll(l *Lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.lanes[l]; ok {
		t.look(l)
	}
}

// look is CheckAll for a lane that is known. t.mu is held.
func (t *Tender) look(l *Lane) {
	t.unseen[l] = struct{}{}
	pause.Wake(t.soon)
}

// take returns the lanes in unseen, and clears unseen.
func (t *Tender) take() []*Lane {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Collect(maps.Keys(t.unseen))
	clear(t.unseen)
	return all
}

// asked reports whether a check of one of the lanes was requested since they were taken: mostly
// because a run could not be checked for now. The next look then waits, as after one that failed.
func (t *Tender) asked(lanes []*Lane) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(lanes, func(l *Lane) bool { _, again := t.unseen[l]; return again })
}

func (t *Tender) all() []*Lane {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.lanes))
}

// survey looks for the waiting runs, and for those of dead workers, of lanes that begin or
// have missed something, and of all lanes after a reconnect.
func (t *Tender) survey(ctx context.Context) {
	const first, last = 100 * time.Millisecond, 10 * time.Second
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	reconnects := t.cfg.Reconnects()
	for wait := first; ; {
		select {
		case <-ctx.Done():
			return
		case <-t.soon:
			if !pause.For(ctx, surveySoon) { // further lanes may begin at the same time
				return
			}
		case <-tick.C:
		}
		if again := t.cfg.Reconnects(); again != reconnects {
			reconnects = again
			for _, l := range t.all() {
				t.CheckAll(l)
			}
		}
		lanes := t.take()
		if len(lanes) == 0 {
			continue
		}
		waiting, owners := map[*Lane][]string{}, map[*Lane][]string{}
		err := t.open(ctx, lanes, func(l *Lane, rec state.Record) error {
			h, err := rec.Header()
			switch {
			case err != nil || l.Owns(rec.ID.Run):
			case h.Status == aaif.RunAwaitingApproval:
				waiting[l] = append(waiting[l], rec.ID.Run)
			case t.cfg.Sweep > 0 && run.Carried(h.Status) && h.Owner != "" && h.Owner != l.Instance && !slices.Contains(owners[l], h.Owner):
				owners[l] = append(owners[l], h.Owner)
			}
			return nil
		})
		forLanes(owners, func(l *Lane, owner string) { l.LookAfter(owner) })
		forLanes(waiting, func(l *Lane, id string) { l.Wake(id) })
		switch {
		case err != nil:
			t.cfg.Log.Debug("waiting runs not listed yet", "err", err)
			for _, l := range lanes {
				t.CheckAll(l)
			}
		case !t.asked(lanes):
			wait = first
			continue
		}
		if !pause.For(ctx, wait) {
			return
		}
		wait = min(2*wait, last)
	}
}

// surveySoon is how long a survey waits for further lanes.
const surveySoon = 20 * time.Millisecond

// forLanes calls do with each id of each lane, those of several lanes at once.
func forLanes(ids map[*Lane][]string, do func(*Lane, string)) {
	const atOnce = 16
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for l, of := range ids {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			for _, id := range of {
				do(l, id)
			}
		})
	}
	all.Wait()
}

// open calls each with the runs of some lanes that have not ended.
func (t *Tender) open(ctx context.Context, lanes []*Lane, each func(*Lane, state.Record) error) error {
	of := map[string][]*Lane{}
	for _, l := range lanes {
		of[l.Entity] = append(of[l.Entity], l)
	}
	pass := func(records iter.Seq2[state.Record, error]) error {
		for rec, err := range records {
			if err != nil {
				return err
			}
			for _, l := range of[rec.ID.Entity] {
				if err := each(l, rec); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if t.cfg.OpenAll != nil && len(of) > surveyEach {
		return pass(t.cfg.OpenAll(ctx))
	}
	for _, same := range of {
		if err := pass(same[0].Open(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// sweeps periodically requeues runs that should have a message and have none: the queue
// was purged or lost, or a worker died after it wrote the record of a resumed run and
// before it queued the message.
func (t *Tender) sweeps(ctx context.Context, every time.Duration) {
	// The pause is random, so that workers that started together do not sweep together.
	// It grows with the number of runs, so that sweeping takes a small part of the time, and for
	// the many that have ended, which are not counted, with the duration of a sweep. That part is
	// bounded: a sweep that waits for a server which is away, or for a processor, must not put
	// off the next one for long.
	wait := every
	for pause.For(ctx, wait/2+rand.N(wait)) {
		began := time.Now()
		n := t.sweep(ctx)
		wait = max(every, time.Duration(n)*sweepPause, min(20*time.Since(began), 4*every))
	}
}

// sweepPause is the part of the pause after a sweep that each of its runs adds, where that exceeds
// [Config].Sweep. To look after a run takes a tenth of it, on a server nearby.
const sweepPause = 5 * time.Millisecond

// sweep makes a sweep, and returns how many runs it has looked at.
func (t *Tender) sweep(ctx context.Context) (n int) {
	lanes := t.all()
	runs := make(map[*Lane]func(context.Context, state.Record) error, len(lanes))
	done := make([]func(bool), 0, len(lanes))
	for _, l := range lanes {
		run, end := l.Sweep()
		runs[l], done = run, append(done, end)
	}
	err := t.open(ctx, lanes, func(l *Lane, rec state.Record) error {
		n++
		return runs[l](ctx, rec)
	})
	if err != nil && ctx.Err() == nil {
		t.cfg.Log.Warn("sweep of the runs", "err", err)
	}
	for _, end := range done {
		end(err == nil)
	}
	return n
}
