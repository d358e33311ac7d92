package share

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
)

// Config configures a [Share].
type Config struct {
	Entity string // the agent
	States interface {
		// Shares returns how much of the stores of runs an entity uses, see [jetstream.States].
		Shares(ctx context.Context, entity string, soon int64) ([]jetstream.Share, error)
	}
	Draining func() bool // the worker begins no more runs
	Log      *slog.Logger
}

// A Share is what one worker knows of its agent's share. Its methods may be called from many
// goroutines.
type Share struct {
	cfg Config

	wake    chan struct{}
	known   atomic.Pointer[[]jetstream.Share] // the figures, as read last
	crowds  atomic.Pointer[jetstream.Share]   // nil: new tasks may begin
	written atomic.Int64                      // bytes written since then
	soon    atomic.Int64                      // bytes of runs that have begun and are not stored yet
	step    atomic.Int64                      // number of written bytes after which the figures are read again

	mu sync.Mutex // held while the figures are read
}

// A Reservation is the bytes that a run which has begun will take in the store. It is a field of
// the run.
type Reservation struct{ bytes atomic.Int64 }

const (
	// shareLook is the pause between two readings of the figures, crowdedLook the pause
	// while new tasks wait. A worker also reads them after it has written 1/shareSteps of
	// a store.
	shareLook   = time.Minute
	crowdedLook = 5 * time.Second
	shareSteps  = 32
	// unseen is the number of workers that are assumed to have written, and admitted, as much as
	// this one since it read the figures. Up to so many workers read the figures again before they
	// can exceed the share together; more workers read them too late.
	unseen = 16
	// A slow look is repeated less often, so that it takes a twentieth of the time. The pause
	// after it is at most mostPause.
	mostPause = 20 * time.Second
	// crowdedPause is the nak delay of a task that may not begin.
	crowdedPause = 10 * time.Second
)

// New returns a share. It does no I/O.
func New(cfg Config) *Share {
	s := &Share{cfg: cfg, wake: make(chan struct{}, 1)}
	s.step.Store(math.MaxInt64)
	return s
}

// Admit reports whether a new run of some bytes may begin, and reserves the bytes if it may. If
// the last figures leave doubt, it reads new ones from the store, for one run at a time.
func (s *Share) Admit(ctx context.Context, r *Reservation, size int64) bool {
	switch {
	case r.bytes.Load() > 0:
		return true
	case s.crowds.Load() != nil:
		return false
	case s.mightExceed(s.written.Add(size)):
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.crowds.Load() == nil && s.mightExceed(s.written.Add(size)) {
			_ = s.look(ctx, size) // without figures the run begins
		}
		if s.crowds.Load() != nil {
			return false
		}
	}
	r.bytes.Store(size)
	s.soon.Add(size)
	return true
}

// Stored ends the reservation of a run that is now stored, or that this worker no longer has.
func (s *Share) Stored(r *Reservation) { s.soon.Add(-r.bytes.Swap(0)) }

// mightExceed reports whether the agent could exceed its share when this worker has stored that many
// bytes since it read the figures. It returns true if the figures are not known, or old: other agents
// may have written as much.
func (s *Share) mightExceed(bytes int64) bool {
	known := s.known.Load()
	if known == nil || bytes >= s.step.Load() {
		return true
	}
	for _, one := range *known {
		if one.MaxBytes <= 0 {
			continue
		}
		if one.Used <= jetstream.CrowdedFrom {
			one.Own = one.Used // upper bound: Own is not known below CrowdedFrom
		}
		more := float64(unseen*(bytes+s.soon.Load())) / float64(one.MaxBytes)
		one.Used, one.Own = one.Used+more, one.Own+more
		if one.Crowded() {
			return true
		}
	}
	return false
}

// Near reports whether the agent could exceed its share by now: then the claim of a run is written
// at once, so that other workers see it.
func (s *Share) Near() bool { return s.known.Load() != nil && s.mightExceed(s.written.Load()) }

// Wrote counts written bytes.
func (s *Share) Wrote(bytes int) {
	if s.written.Add(int64(bytes)) < s.step.Load() {
		return
	}
	pause.Wake(s.wake)
}

// Tend reads the figures from the store periodically until awake ends. It makes slow requests less
// often, so that they take a small part of the time. After a failed request the pause does not
// grow.
func (s *Share) Tend(awake context.Context) {
	defer s.forget()
	for {
		began := time.Now()
		s.mu.Lock()
		err := s.look(awake, 0)
		s.mu.Unlock()
		every, rest := shareLook, min(20*time.Since(began), mostPause)
		if s.crowds.Load() != nil {
			every = crowdedLook
		}
		if err != nil {
			rest = 0 // a failed request says nothing about how long a reading takes
		}
		if !pause.For(awake, rest) {
			return
		}
		timer := time.NewTimer(max(0, every-rest))
		select {
		case <-timer.C:
		case <-s.wake:
		case <-awake.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// forget drops the figures when Tend ends: they are old when it begins again.
func (s *Share) forget() {
	if !s.cfg.Draining() {
		s.known.Store(nil)
		s.crowds.Store(nil)
	}
}

// look reads the figures from the store. bytes is the size of a run that is about to begin.
// If it fails, the figures stay. s.mu is held.
func (s *Share) look(ctx context.Context, bytes int64) error {
	ctx, cancel := context.WithTimeout(ctx, sched.StoreTimeout)
	defer cancel()
	log := s.cfg.Log
	s.written.Store(0)
	all, err := s.cfg.States.Shares(ctx, s.cfg.Entity, s.soon.Load()+bytes)
	if err != nil {
		log.Debug("share of the store of runs not known", "err", err)
		return err
	}
	step := int64(math.MaxInt64)
	var crowds *jetstream.Share
	for _, one := range all {
		if one.MaxBytes > 0 {
			step = min(step, one.MaxBytes/shareSteps)
		}
		if one.Crowded() {
			crowds = &one
		}
	}
	s.step.Store(step)
	s.known.Store(&all)
	was := s.crowds.Swap(crowds)
	switch {
	case crowds != nil && was == nil:
		log.Warn("new tasks wait: this agent's runs take more than their share", "store", crowds.Store, "used", crowds.Used, "own", crowds.Own, "may", crowds.Fair())
	case crowds == nil && was != nil:
		log.Info("new tasks begin again: this agent's runs take no more than their share")
	}
	return nil
}

// Trouble returns why no new run may begin, with the time after which one may be tried again; nil
// if new runs may begin.
func (s *Share) Trouble() *envelope.Error {
	c := s.crowds.Load()
	if c == nil {
		return nil
	}
	return envelope.Errorf(envelope.CodeBusy, "%s", crowdedBy(c)).WithBackoff(crowdedPause)
}

func crowdedBy(c *jetstream.Share) string {
	return fmt.Sprintf("%s is full to %.0f %%, about %.1f %% by runs of this agent, which may use %.1f %%: its new tasks wait", c.Store, 100*c.Used, 100*c.Own, 100*c.Fair())
}
