package mesh

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// slots hold an agent to its limit across the mesh (AAIF runtime.concurrency): a
// durable task is drawn only when there is a slot for it, and runs in one. A
// worker that dies loses its slots with their lease; one that cannot renew a
// slot gives the task up that is in it.
type slots struct {
	lane *lane
	poke chan struct{} // a place is free, or taken
	got  chan *jetstream.Slot

	mu   sync.Mutex
	free []*heldSlot
	used map[*Run]*heldSlot
}

type heldSlot struct {
	*jetstream.Slot
	renewed time.Time
}

func newSlots(l *lane) *slots {
	return &slots{lane: l, poke: make(chan struct{}, 1), got: make(chan *jetstream.Slot), used: map[*Run]*heldSlot{}}
}

// idle is how many tasks may begin.
func (s *slots) idle() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.free)
}

// take gives a run a slot, if there is one.
func (s *slots) take(r *Run) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		return false
	}
	last := len(s.free) - 1
	s.used[r], s.free = s.free[last], s.free[:last]
	return true
}

// leave gives the slot of a run back that is not worked on any more.
func (s *slots) leave(r *Run) {
	s.mu.Lock()
	if slot := s.used[r]; slot != nil {
		delete(s.used, r)
		s.free = append(s.free, slot)
	}
	s.mu.Unlock()
	s.nudge()
}

func (s *slots) nudge() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// tend holds as many slots as there are places for durable tasks, and keeps
// their leases.
func (s *slots) tend() {
	l := s.lane
	tick := time.NewTicker(l.cfg.Slots.Lease() / 4)
	defer tick.Stop()
	var seeking context.CancelFunc // nil: no slot is waited for
	var seekers sync.WaitGroup
	for {
		switch want := s.balance(); {
		case want && seeking == nil:
			var ctx context.Context
			ctx, seeking = context.WithCancel(l.ctx)
			seekers.Go(func() {
				slot, err := l.cfg.Slots.Acquire(ctx, l.host.Entity, l.host.MeshConcurrency, l.host.id)
				if err != nil && ctx.Err() == nil {
					l.host.log.Warn("no slot", "err", err)
					_ = sleep(ctx, time.Second)
				}
				s.got <- slot
			})
		case !want && seeking != nil:
			seeking()
		}
		select {
		case slot := <-s.got:
			seeking()
			seeking = nil
			if slot != nil {
				s.mu.Lock()
				s.free = append(s.free, &heldSlot{slot, time.Now()})
				s.mu.Unlock()
				l.queue.Wake()
			}
		case <-tick.C:
			s.renew()
		case <-s.poke:
		case <-l.ctx.Done():
			if seeking != nil {
				seeking()
				if slot := <-s.got; slot != nil {
					s.mu.Lock()
					s.free = append(s.free, &heldSlot{slot, time.Now()})
					s.mu.Unlock()
				}
			}
			seekers.Wait()
			s.release()
			return
		}
	}
}

// balance gives back what there are no places for, and reports whether more is
// wanted. Live tasks take places too.
func (s *slots) balance() (want bool) {
	l := s.lane
	s.mu.Lock()
	used := len(s.used)
	goal := used + max(0, l.host.Concurrency-int(l.host.active.Load()))
	if l.leaving.Load() {
		goal = used
	}
	goal = min(goal, l.host.MeshConcurrency)
	var surplus []*heldSlot
	for len(s.free) > int(l.waiting.Load()) && used+len(s.free) > goal {
		last := len(s.free) - 1
		surplus, s.free = append(surplus, s.free[last]), s.free[:last]
	}
	want = used+len(s.free) < goal
	s.mu.Unlock()
	for _, slot := range surplus {
		s.drop(slot)
	}
	return want
}

func (s *slots) drop(slot *heldSlot) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := slot.Release(ctx); err != nil {
		s.lane.host.log.Debug("slot not released, its lease ends it", "err", err)
	}
}

// renew begins the leases anew. A slot that was lost, or that could not be
// renewed for most of its lease, counts no more.
func (s *slots) renew() {
	l := s.lane
	s.mu.Lock()
	all := append([]*heldSlot(nil), s.free...)
	for _, slot := range s.used {
		all = append(all, slot)
	}
	s.mu.Unlock()
	for _, slot := range all {
		ctx, cancel := context.WithTimeout(l.ctx, l.cfg.Slots.Lease()/4)
		err := slot.Renew(ctx)
		cancel()
		switch {
		case err == nil:
			slot.renewed = time.Now()
		case errors.Is(err, state.ErrChanged), errors.Is(err, jetstream.ErrChanged), time.Since(slot.renewed) > l.cfg.Slots.Lease()*3/4:
			s.lost(slot, err)
		}
	}
}

func (s *slots) lost(slot *heldSlot, why error) {
	s.lane.host.log.Warn("slot lost", "err", why)
	var run *Run
	s.mu.Lock()
	for i, f := range s.free {
		if f == slot {
			s.free = append(s.free[:i], s.free[i+1:]...)
			break
		}
	}
	for r, u := range s.used {
		if u == slot {
			delete(s.used, r)
			run = r
		}
	}
	s.mu.Unlock()
	if run != nil {
		s.lane.giveUp(run.task, envelope.Errorf(envelope.CodeUnavailable, "the task's slot went to another worker").WithCause(why))
	}
}

func (s *slots) release() {
	s.mu.Lock()
	all := s.free
	for _, slot := range s.used {
		all = append(all, slot)
	}
	s.free, s.used = nil, map[*Run]*heldSlot{}
	s.mu.Unlock()
	for _, slot := range all {
		s.drop(slot)
	}
}
