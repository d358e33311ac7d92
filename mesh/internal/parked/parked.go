package parked

import (
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/mesh/internal/sched"
)

// maxChecks bounds the single checks that wait. Beyond it all runs are checked.
const maxChecks = 256

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

// Config configures [Runs].
type Config struct {
	Conn *nats.Conn
	Log  *slog.Logger
	// Check checks one run: it calls Watch, and Remove once the run waits no longer. It
	// runs on a goroutine of [Runs], one call at a time.
	Check func(run string)
	// CheckAll has all runs checked, because too many single checks wait. It must not block.
	CheckAll func()
}

// Runs are parked runs that are watched. Its methods may be called from many goroutines.
type Runs struct {
	cfg    Config
	checks *sched.Crew

	mu   sync.Mutex
	runs map[string]*dormant // by run id; nil after Close
}

// dormant is a parked run that is watched.
type dormant struct {
	rev   uint64 // of its record
	subs  []*nats.Subscription
	timer *time.Timer   // nil: the run wakes at no set time
	again *time.Timer   // for the next check
	pause time.Duration // that again is set to
}

// New returns Runs that watch none yet.
func New(cfg Config) *Runs {
	return &Runs{cfg: cfg, checks: sched.NewCrew(1, maxChecks), runs: map[string]*dormant{}}
}

// CheckSoon has a run checked on another goroutine. It does not block.
func (w *Runs) CheckSoon(run string) {
	if !w.checks.Go(func() { w.cfg.Check(run) }) {
		w.cfg.CheckAll()
	}
}

// Watch watches a run whose record has the revision rev: the run is checked at each message on one
// of the subjects, and at the time at by this machine's clock, unless that is zero.
func (w *Runs) Watch(id string, rev uint64, subjects iter.Seq[string], at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.runs[id]
	if w.runs == nil || s != nil && s.rev == rev || s == nil && len(w.runs) >= maxWatched {
		return
	}
	pause := recheckNew
	if s != nil { // an answer that the last revision waits for may not be stored yet
		pause = min(pause, s.pause)
	}
	s.stop()
	s = &dormant{rev: rev, pause: pause}
	w.runs[id] = s
	for to := range subjects {
		sub, err := w.cfg.Conn.Subscribe(to, func(*nats.Msg) { w.checkRepeatedly(id) })
		if err != nil {
			w.cfg.Log.Debug("answers not subscribed to", "run", id, "err", err)
			continue // the sweep checks the run
		}
		s.subs = append(s.subs, sub)
	}
	s.again = time.AfterFunc(s.pause, func() { w.recheck(id, s) })
	if !at.IsZero() {
		s.timer = time.AfterFunc(time.Until(at), func() { w.checkRepeatedly(id) })
	}
}

// checkRepeatedly checks a run now and, with growing pauses, a few times more: a
// message has come on a reply subject, or the run's time has.
func (w *Runs) checkRepeatedly(run string) {
	w.mu.Lock()
	if s := w.runs[run]; s != nil {
		s.pause = recheckFirst
		s.again.Reset(s.pause)
	}
	w.mu.Unlock()
	w.CheckSoon(run)
}

func (w *Runs) recheck(run string, s *dormant) {
	w.mu.Lock()
	known := w.runs[run] == s
	if s.pause *= 4; known && s.pause <= recheckLast {
		s.again.Reset(s.pause)
	}
	w.mu.Unlock()
	if known {
		w.CheckSoon(run)
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

// Remove watches a run no more.
func (w *Runs) Remove(run string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[run].stop()
	delete(w.runs, run)
}

// Watched returns the runs that are watched, and the revisions of their records.
func (w *Runs) Watched() map[string]uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	runs := make(map[string]uint64, len(w.runs))
	for run, s := range w.runs {
		runs[run] = s.rev
	}
	return runs
}

// Forget removes runs that are still watched at these revisions.
func (w *Runs) Forget(runs map[string]uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for run, rev := range runs {
		if s := w.runs[run]; s != nil && s.rev == rev {
			s.stop()
			delete(w.runs, run)
		}
	}
}

// Len returns how many runs are watched.
func (w *Runs) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.runs)
}

// Close ends the watch of all runs. When it returns, no check runs.
func (w *Runs) Close() {
	w.checks.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.runs {
		s.stop()
	}
	w.runs = nil
}
