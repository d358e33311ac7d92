package slots

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/state"
)

// announceWanted announces to the agent's other workers that tasks wait for slots at this worker. It
// reports whether any task waits.
func (s *Slots[T]) announceWanted() bool {
	s.mu.Lock()
	n := len(s.waiters)
	s.mu.Unlock()
	if n == 0 {
		return false
	}
	if err := s.cfg.Announce(); err != nil {
		s.cfg.Log.Debug("cannot announce that tasks wait for slots", "err", err)
	}
	return true
}

// Run acquires slots for the tasks and spare slots, and renews their leases. When ctx ends,
// it releases them all and returns.
func (s *Slots[T]) Run(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Store.RenewEvery())
	defer tick.Stop()
	first := time.NewTimer(firstLook)
	defer first.Stop()
	again := time.NewTimer(wantEvery) // fires while tasks wait for slots at this or another worker
	defer again.Stop()
	set := true // again will fire
	var said time.Time
	var seeking context.CancelFunc // cancels a running Acquire; nil: none runs
	var seekers sync.WaitGroup
	var looking atomic.Bool
	look := func(age time.Duration) {
		if seeking != nil && looking.CompareAndSwap(false, true) {
			seekers.Go(func() {
				defer looking.Store(false)
				s.lookAfterSilent(ctx, age)
			})
		}
	}
	for {
		want, contended := s.balance(ctx)
		switch {
		case want && seeking == nil:
			var sought context.Context
			sought, seeking = context.WithCancel(ctx)
			seekers.Go(func() { s.got <- s.acquire(sought) })
		case !want && seeking != nil:
			seeking()
		}
		if now := time.Now(); want && now.Sub(said) >= wantSoon && s.announceWanted() {
			said = now
		}
		if contended && !set {
			again.Reset(wantEvery)
			set = true
		}
		select {
		case slot := <-s.got:
			seeking()
			seeking = nil
			s.keep(slot)
			if slot != nil {
				s.cfg.Acquired()
			}
		case <-tick.C:
			s.renew(ctx)
			look(s.cfg.Store.Late())
		case <-first.C:
			look(0)
		case <-again.C:
			set = false
		case <-s.changed:
		case <-ctx.Done():
			if seeking != nil {
				seeking()
				s.keep(<-s.got)
			}
			seekers.Wait()
			s.releases.Wait()
			s.release()
			return
		}
	}
}

// lookAfterSilent calls Silent for each other holder whose slot was last renewed at least age ago.
func (s *Slots[T]) lookAfterSilent(ctx context.Context, age time.Duration) {
	listing, cancel := context.WithTimeout(ctx, releaseWait)
	defer cancel()
	held, err := s.cfg.Store.List(listing, s.cfg.Entity)
	if err != nil {
		s.cfg.Log.Debug("cannot list the holders of slots", "err", err)
		return
	}
	seen := map[string]bool{s.cfg.Instance: true}
	for _, h := range held {
		if !seen[h.Holder] && s.cfg.Now().Sub(h.Since) >= age {
			seen[h.Holder] = true
			s.cfg.Silent(ctx, h.Holder)
		}
	}
}

// acquire acquires a slot. After an error it waits for a second, and returns nil.
func (s *Slots[T]) acquire(ctx context.Context) *slot.Slot {
	s.mu.Lock()
	s.seeking = true
	if s.heard.IsZero() {
		s.heard = time.Now()
	}
	s.mu.Unlock()
	slot, err := s.cfg.Store.Acquire(ctx, s.cfg.Entity, s.cfg.Most, s.cfg.Instance, func() {
		s.mu.Lock()
		s.heard = time.Now()
		s.mu.Unlock()
	})
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Warn("slot not acquired", "err", err)
		pause.For(ctx, time.Second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeking = false
	if slot != nil || err == nil || ctx.Err() != nil && time.Since(s.heard) < s.cfg.Store.Late() {
		s.heard = time.Time{} // else the next search goes on with an outage that is under way
	}
	return slot
}

// Away reports whether a slot is sought, and the store has not answered for some seconds.
func (s *Slots[T]) Away() bool { return s.unheard(s.cfg.Store.Late()) }

func (s *Slots[T]) unheard(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seeking && time.Since(s.heard) >= d
}

// keep adds a slot that was just acquired. It ignores nil.
func (s *Slots[T]) keep(slot *slot.Slot) {
	if slot == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give(&heldSlot{Slot: slot, renewed: time.Now()})
}

// balance releases slots that are not needed. It reports whether another slot is wanted, and
// whether tasks wait for slots at this or another worker.
func (s *Slots[T]) balance(ctx context.Context) (want, contended bool) {
	s.mu.Lock()
	elsewhere := time.Since(s.wanted) < wantLasts
	used, need := len(s.used), len(s.waiters)
	goal, most := used+need, used+need
	if !elsewhere {
		places := max(0, s.cfg.Places())
		goal += min(places, max(1, used))
		most += places
	}
	if s.cfg.Draining() {
		goal, most = used, used
	}
	goal, most = min(goal, s.cfg.Most), min(most, s.cfg.Most)
	surplus := s.back
	s.back = nil
	// The most recently freed slot is used first, so the slots at the front have been idle
	// longest.
	for n := used + len(s.free); len(s.free) > s.cfg.Drawn() && (n > most || n > goal && time.Since(s.free[0].idle) > spareLeases*s.cfg.Store.Lease()); n-- {
		surplus, s.free = append(surplus, s.free[0]), s.free[1:]
	}
	want = used+len(s.free) < goal
	s.mu.Unlock()
	s.dropAll(surplus, func(slot *heldSlot) { s.releases.Go(func() { s.dropAgain(ctx, slot) }) })
	return want, elsewhere || need > 0
}

// dropAll releases slots, all at once: while the server is away, each takes releaseWait. A worker that
// stops does not end it. failed is called for each slot whose release is to be repeated, by many
// goroutines.
func (s *Slots[T]) dropAll(slots []*heldSlot, failed func(*heldSlot)) {
	var drops sync.WaitGroup
	for _, slot := range slots {
		drops.Go(func() {
			if !s.drop(context.Background(), slot) {
				failed(slot)
			}
		})
	}
	drops.Wait()
}

// drop releases a slot, and reports whether there is nothing to repeat.
func (s *Slots[T]) drop(ctx context.Context, slot *heldSlot) bool {
	ctx, cancel := context.WithTimeout(ctx, releaseWait)
	defer cancel()
	err := slot.Release(ctx)
	if err != nil {
		s.cfg.Log.Debug("slot not released", "err", err)
	}
	return err == nil || errors.Is(err, jetstream.ErrDenied)
}

// dropAgain releases a slot whose release failed: otherwise all workers would wait until its lease
// ends. It returns when the slot is released, the lease is over, or ctx ends: a worker that stops
// while the server is away does not wait for it.
func (s *Slots[T]) dropAgain(ctx context.Context, slot *heldSlot) {
	for over := time.Now().Add(s.cfg.Store.Lease()); time.Now().Before(over); {
		if !pause.For(ctx, wantEvery) || s.drop(ctx, slot) {
			return
		}
	}
}

// renew renews the leases of all slots. A slot that was lost, or that could not be renewed for
// three quarters of its lease, is given to [Slots.lost].
func (s *Slots[T]) renew(ctx context.Context) {
	s.mu.Lock()
	all := slices.AppendSeq(slices.Clone(s.free), maps.Values(s.used))
	s.mu.Unlock()
	var renewals sync.WaitGroup
	for _, slot := range all {
		renewals.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, s.cfg.Store.Lease()/4)
			defer cancel()
			err := slot.Renew(ctx)
			switch {
			case err == nil:
				slot.renewed = time.Now()
			case errors.Is(err, state.ErrChanged), errors.Is(err, jetstream.ErrChanged), time.Since(slot.renewed) > s.cfg.Store.Lease()*3/4:
				s.lost(slot, err)
			}
		})
	}
	renewals.Wait()
}

func (s *Slots[T]) lost(slot *heldSlot, why error) {
	lease := s.cfg.Store.Lease()
	gone := envelope.Errorf(envelope.CodeUnavailable, "JetStream was unreachable for too long: the task's slot (runtime.concurrency) could not be renewed within its lease of %v", lease).WithCause(why)
	if errors.Is(why, jetstream.ErrChanged) {
		gone = envelope.Errorf(envelope.CodeUnavailable, "the task lost its slot (runtime.concurrency): the lease of %v expired before it was renewed, or another worker took this one for dead", lease).WithCause(why)
	}
	s.cfg.Log.Warn("slot lost", "err", why)
	var task T
	used := false
	s.mu.Lock()
	for i, f := range s.free {
		if f == slot {
			s.free = append(s.free[:i], s.free[i+1:]...)
			break
		}
	}
	for t, u := range s.used {
		if u == slot {
			delete(s.used, t)
			task, used = t, true
		}
	}
	s.mu.Unlock()
	if used {
		s.cfg.Lost(task, gone)
	}
}

func (s *Slots[T]) release() {
	s.mu.Lock()
	all := slices.AppendSeq(append(s.free, s.back...), maps.Values(s.used))
	s.free, s.back, s.used = nil, nil, map[T]*heldSlot{}
	s.mu.Unlock()
	s.dropAll(all, func(*heldSlot) {})
}
