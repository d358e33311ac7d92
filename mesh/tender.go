package mesh

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// tender does the periodic work of a node's lanes that does not depend on tasks: it reads
// the server's clock, looks for runs that wait or have lost their message, and removes
// ended runs before the store of runs is full. It reads the runs of all agents together,
// so an idle agent costs nothing. Its goroutines run while the node has a lane.
type tender struct {
	node *Node

	mu     sync.Mutex
	lanes  map[*lane]struct{}
	unseen map[*lane]struct{} // lanes whose waiting runs have to be looked for
	soon   chan struct{}      // signals survey: a lane was added to unseen
	end    func()
}

// For up to surveyEach entities the runs are read entity by entity, so that a process with
// few agents does not read all runs of a large mesh.
const surveyEach = 4

// add adds a lane; remove removes it.
func (t *tender) add(l *lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lanes == nil {
		t.lanes, t.unseen, t.soon = map[*lane]struct{}{}, map[*lane]struct{}{}, make(chan struct{}, 1)
	}
	t.lanes[l] = struct{}{}
	if len(t.lanes) == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { t.node.clock.tend(ctx, l.cfg.Clock) })
		running.Go(func() { t.survey(ctx) })
		if l.cfg.Sweep > 0 {
			running.Go(func() { t.sweeps(ctx, l.cfg.Sweep) })
			running.Go(func() { t.deleteEnded(ctx, l.cfg.States, l.tel) })
		}
		t.end = func() {
			cancel()
			running.Wait()
		}
	}
	t.look(l)
}

func (t *tender) remove(l *lane) {
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

// checkAll requests a check of all waiting runs of a lane. It does not block.
func (t *tender) checkAll(l *lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.lanes[l]; ok {
		t.look(l)
	}
}

// look is checkAll for a lane that is known. t.mu is held.
func (t *tender) look(l *lane) {
	t.unseen[l] = struct{}{}
	select {
	case t.soon <- struct{}{}:
	default:
	}
}

// take returns the lanes in unseen, and clears unseen.
func (t *tender) take() []*lane {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*lane, 0, len(t.unseen))
	for l := range t.unseen {
		all = append(all, l)
	}
	clear(t.unseen)
	return all
}

func (t *tender) all() []*lane {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*lane, 0, len(t.lanes))
	for l := range t.lanes {
		all = append(all, l)
	}
	return all
}

// survey looks for the waiting runs, and for those of dead workers, of lanes that begin or
// have missed something, and of all lanes after a reconnect.
func (t *tender) survey(ctx context.Context) {
	const first, last = 100 * time.Millisecond, 10 * time.Second
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	conn := t.node.conn
	reconnects := conn.Stats().Reconnects
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
		if again := conn.Stats().Reconnects; again != reconnects {
			reconnects = again
			for _, l := range t.all() {
				t.checkAll(l)
			}
		}
		lanes := t.take()
		if len(lanes) == 0 {
			continue
		}
		waiting, owners := map[*lane][]string{}, map[*lane][]string{}
		err := t.open(ctx, lanes, func(l *lane, rec state.Record) error {
			h, err := rec.Header()
			switch {
			case err != nil || l.run(rec.ID.Run) != nil:
			case h.Status == aaif.RunAwaitingApproval:
				waiting[l] = append(waiting[l], rec.ID.Run)
			case l.cfg.Sweep > 0 && run.Carried(h.Status) && h.Owner != "" && h.Owner != l.host.id && !slices.Contains(owners[l], h.Owner):
				owners[l] = append(owners[l], h.Owner)
			}
			return nil
		})
		forLanes(owners, func(l *lane, owner string) { l.guardian.LookAfter(l.ctx, owner) })
		forLanes(waiting, func(l *lane, id string) { l.waits.check(id) })
		if err == nil {
			wait = first
			continue
		}
		t.node.log.Debug("waiting runs not listed yet", "err", err)
		for _, l := range lanes {
			t.checkAll(l)
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
func forLanes(ids map[*lane][]string, do func(*lane, string)) {
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
func (t *tender) open(ctx context.Context, lanes []*lane, each func(*lane, state.Record) error) error {
	of := map[string][]*lane{}
	for _, l := range lanes {
		of[l.host.Entity] = append(of[l.host.Entity], l)
	}
	pass := func(rec state.Record) error {
		for _, l := range of[rec.ID.Entity] {
			if err := each(l, rec); err != nil {
				return err
			}
		}
		return nil
	}
	store, ok := t.node.cfg.Durable.States.(opener)
	if ok && len(of) > surveyEach && !t.node.cfg.Durable.fenced {
		for rec, err := range store.Open(ctx, "") {
			if err == nil {
				err = pass(rec)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	for _, same := range of {
		for rec, err := range same[0].records.open(ctx) {
			if err == nil {
				err = pass(rec)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// sweeps periodically requeues runs that should have a message and have none: the queue
// was purged or lost, or a worker died after it wrote the record of a resumed run and
// before it queued the message.
func (t *tender) sweeps(ctx context.Context, every time.Duration) {
	// The pause is random, so that workers that started together do not sweep together.
	// It grows with the duration of a sweep, so that sweeping takes a small part of the
	// time.
	wait := every
	for pause.For(ctx, wait/2+rand.N(wait)) {
		began := time.Now()
		t.sweep(ctx)
		wait = max(every, 20*time.Since(began))
	}
}

func (t *tender) sweep(ctx context.Context) {
	lanes := t.all()
	sweeps := make(map[*lane]*sweep, len(lanes))
	for _, l := range lanes {
		sweeps[l] = l.sweep()
	}
	err := t.open(ctx, lanes, func(l *lane, rec state.Record) error { return sweeps[l].run(ctx, rec) })
	if err != nil && ctx.Err() == nil {
		t.node.log.Warn("sweep of the runs", "err", err)
	}
	for _, s := range sweeps {
		s.done(err == nil)
	}
}
