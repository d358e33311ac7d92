package watch

import (
	"context"
	"sync"
	"time"
)

// Config says how workers are watched.
type Config struct {
	// Probe asks whether a worker is there. It returns false only if the server
	// answers "no responders"; a timeout, or any other error, is true.
	Probe func(ctx context.Context, worker string) bool
	// Dead is called, on a goroutine of its own, for a worker that is dead. It is not
	// watched any more.
	Dead func(ctx context.Context, worker string)
	// Steady reports whether this process has been connected for a while: right after it
	// was disconnected others may be connecting again.
	Steady func() bool

	Every time.Duration // between two probes of a worker
	Rate  int           // probes a second of all workers together; more workers are probed less often
	Most  int           // workers that are watched at once
}

// A Watch watches workers. Its methods may be called from many goroutines.
type Watch struct {
	cfg  Config
	wake chan struct{}

	mu       sync.Mutex
	watching map[string]*worker
}

type worker struct {
	again   time.Duration // between the first probe without a responder, and the second
	next    time.Time
	missing int  // probes in a row without a responder
	probing bool // one is under way
}

// New returns a Watch that watches no worker yet.
func New(cfg Config) *Watch {
	return &Watch{cfg: cfg, wake: make(chan struct{}, 1), watching: map[string]*worker{}}
}

// Add watches a worker. It is dead if it has no responder in two probes that are again
// apart: a worker that lost its connection must be back by then. Add reports false where
// too many workers are watched.
func (w *Watch) Add(id string, again time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.watching[id]; one != nil {
		one.again = max(one.again, again)
		return true
	}
	if len(w.watching) >= w.cfg.Most {
		return false
	}
	w.watching[id] = &worker{again: again, next: time.Now().Add(w.every())}
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return true
}

// every is the time between two probes of a worker. w.mu is held.
func (w *Watch) every() time.Duration {
	return max(w.cfg.Every, time.Duration(len(w.watching))*time.Second/time.Duration(w.cfg.Rate))
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

// Run watches until ctx ends. It returns when all that it has begun has ended.
func (w *Watch) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(w.probeAll(ctx, &work))
		select {
		case <-timer.C:
		case <-w.wake:
		case <-ctx.Done():
			return
		}
	}
}

// probeAll probes the workers whose time has come, and returns how long to wait for the
// next ones.
func (w *Watch) probeAll(ctx context.Context, work *sync.WaitGroup) time.Duration {
	now, pause := time.Now(), time.Hour
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, one := range w.watching {
		if one.probing {
			continue
		}
		if left := one.next.Sub(now); left > 0 {
			pause = min(pause, left)
			continue
		}
		one.probing = true
		work.Go(func() { w.probe(ctx, work, id, one) })
	}
	return pause
}

func (w *Watch) probe(ctx context.Context, work *sync.WaitGroup, id string, one *worker) {
	began := time.Now()
	there := w.cfg.Probe(ctx, id) || !w.cfg.Steady() || ctx.Err() != nil
	w.mu.Lock()
	defer w.mu.Unlock()
	one.probing = false
	if w.watching[id] != one {
		return
	}
	switch {
	case there:
		one.missing, one.next = 0, began.Add(w.every())
	case one.missing == 0:
		one.missing, one.next = 1, time.Now().Add(one.again)
	default:
		delete(w.watching, id)
		work.Go(func() { w.cfg.Dead(ctx, id) })
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
