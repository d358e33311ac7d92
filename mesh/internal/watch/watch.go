package watch

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
)

// Config says how workers are watched.
type Config struct {
	// Probe sends a probe, and does not wait: [Watch.Missing] is called if the server answers "no
	// responders". Silence, and any other answer, means that the worker is there. again reports
	// whether this is the second probe.
	Probe func(worker string, again bool)
	// Dead is called, on a goroutine of its own, for a worker that is dead. It is not
	// watched any more.
	Dead func(ctx context.Context, worker string)
	// Steady reports whether this process has been connected for a while: right after it
	// was disconnected others may be connecting again.
	Steady func() bool

	Wait time.Duration // how soon the server answers the second probe of a worker that is gone
	Rate int           // probes a second of all workers together; more workers are probed less often
	Most int           // workers that are watched at once
}

// A Watch watches workers. Its methods may be called from many goroutines.
type Watch struct {
	cfg  Config
	wake chan struct{}

	mu       sync.Mutex
	watching map[string]*worker
	late     time.Duration // how late this process wakes for its probes: see wokeUp
}

type worker struct {
	every time.Duration // between two probes
	again time.Duration // between the answer to the first probe, and the second
	sent  time.Time     // when the last first probe was sent
	back  time.Time     // when it last came back after a probe that found no responder
	next  time.Time     // when the phase ends
	phase phase
}

type phase int

const (
	there   phase = iota // next is the time of the next probe
	missing              // a probe found no responder; next is the time of the second
	asked                // the second is sent; at next the worker counts as there again
	dead                 // the second found no responder either
)

// A worker on a busy machine takes longer to reconnect: its process waits for a processor in each
// step, as this process and the server do. So the pause before the second probe grows with the
// delays that this process measures: how late it wakes for its probes, and how long the server
// takes to answer one.
const (
	slowFactor = 20 // steps of a reconnect, roughly
	maxSlow    = time.Second
)

// A worker that was away and came back may be away again, for longer: its machine is busy,
// or its network is bad. For backMemory it gets backPause more.
const (
	backPause  = 700 * time.Millisecond
	backMemory = 10 * time.Minute
)

// patience returns by how much the pause before the second probe of a worker grows. w.mu is held.
func (w *Watch) patience(one *worker, now time.Time) time.Duration {
	more := min(slowFactor*max(w.late, now.Sub(one.sent)), maxSlow)
	if now.Sub(one.back) < backMemory {
		more = max(more, backPause)
	}
	return more
}

// wokeUp records how late Run woke for probes. The longest delay counts, but less after each call:
// after 50 calls a third of it. w.mu is held.
func (w *Watch) wokeUp(late time.Duration) {
	w.late = max(late, w.late-w.late/50)
}

// New returns a Watch that watches no worker yet.
func New(cfg Config) *Watch {
	return &Watch{cfg: cfg, wake: make(chan struct{}, 1), watching: map[string]*worker{}}
}

// Add watches a worker, and probes it at the interval every. The worker is dead if two probes find
// no responder; the pause between them is again, within which a worker that lost its connection
// must be back. For a worker that is watched already, the longer pause and the shorter interval
// apply. Add returns false if too many workers are watched.
func (w *Watch) Add(id string, every, again time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.watching[id]
	switch {
	case one != nil:
		one.again = max(one.again, again)
		if every >= one.every {
			return true
		}
		one.every = every
		if next := w.following(every); one.phase == there && next.Before(one.next) {
			one.next = next
		}
	case len(w.watching) >= w.cfg.Most:
		return false
	default:
		w.watching[id] = &worker{every: every, again: again, next: w.following(every)}
	}
	w.rouse()
	return true
}

// following returns the time of the next probe of a worker. All workers of this process
// that have the same period are probed at the same time, so that their probes share a
// write. w.mu is held.
func (w *Watch) following(every time.Duration) time.Time {
	every = max(every, time.Duration(len(w.watching))*time.Second/time.Duration(w.cfg.Rate))
	now := time.Now()
	return now.Add(every - time.Duration(now.Add(offset).UnixNano())%every)
}

// offset keeps the processes of a mesh from probing at the same time.
var offset = rand.N(time.Second)

// rouse lets Run look at the workers again. w.mu is held.
func (w *Watch) rouse() {
	pause.Wake(w.wake)
}

// Remove watches a worker no more.
func (w *Watch) Remove(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watching, id)
}

// Len is how many workers are watched.
func (w *Watch) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watching)
}

// Missing says that the server found no responder for a worker's probe. The server must
// answer probes in their order.
func (w *Watch) Missing(id string, again bool) {
	steady := w.cfg.Steady()
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.watching[id]
	switch {
	case one == nil:
		return
	case !steady:
		one.phase, one.next = there, w.following(one.every)
	case one.phase == there:
		now := time.Now()
		one.phase, one.next = missing, now.Add(one.again+w.patience(one, now))
	case one.phase == asked && again:
		one.phase, one.next = dead, time.Time{}
	}
	w.rouse()
}

// Run watches until ctx ends. It returns when all that it has begun has ended.
func (w *Watch) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var due []probe
	for {
		var pause time.Duration
		due, pause = w.due(due[:0], func(id string) {
			work.Go(func() { w.cfg.Dead(ctx, id) })
		})
		for _, p := range due {
			w.cfg.Probe(p.worker, p.again)
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-w.wake:
		case <-ctx.Done():
			return
		}
	}
}

// probe is one that is due.
type probe struct {
	worker string
	again  bool
}

// due appends the probes whose time has come, calls bury for each worker that is dead, and
// returns how long to wait for the next.
func (w *Watch) due(all []probe, bury func(worker string)) ([]probe, time.Duration) {
	now, pause := time.Now(), time.Hour
	w.mu.Lock()
	defer w.mu.Unlock()
	late := time.Duration(-1) // no first probe is due
	for id, one := range w.watching {
		left := one.next.Sub(now)
		if left > 0 {
			pause = min(pause, left)
			continue
		}
		switch one.phase {
		case dead:
			delete(w.watching, id)
			bury(id)
			continue
		case missing:
			all = append(all, probe{id, true})
			one.phase, one.next = asked, now.Add(w.cfg.Wait)
		default:
			if one.phase == asked {
				one.back = now
			}
			all = append(all, probe{id, false})
			late = max(late, -left)
			one.phase, one.sent, one.next = there, now, w.following(one.every)
		}
		pause = min(pause, one.next.Sub(now))
	}
	if late >= 0 {
		w.wokeUp(late)
	}
	return all, pause
}
