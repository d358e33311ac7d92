package mesh

import (
	"context"
	"sync"
	"time"
)

// Slots are the places that an entity's durable tasks have in the whole mesh.
type Slots interface {
	// Acquire takes one of limit slots of an entity for a holder until its
	// lease ends, or returns nil where all are taken.
	Acquire(ctx context.Context, entity string, limit int, holder string) (Slot, error)
}

// Slot is one of them while it is held.
type Slot interface {
	// Renew begins the lease anew. It fails where the slot was lost.
	Renew(ctx context.Context) error
	// Release gives it back.
	Release(ctx context.Context) error
}

// slots hold an agent to its limit across the mesh (AAIF runtime.concurrency): a
// durable task is drawn only into a slot that this worker holds. One that dies
// loses its slots with its lease.
type slots struct {
	lane *lane
	want chan struct{} // a place is free, or a slot was lost

	mu   sync.Mutex
	held []Slot
}

func newSlots(l *lane) *slots { return &slots{lane: l, want: make(chan struct{}, 1)} }

// idle is how many tasks may begin beside those that run: the slots that no
// durable task is in.
func (s *slots) idle() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, len(s.held)-int(s.lane.performing.Load()))
}

func (s *slots) nudge() {
	select {
	case s.want <- struct{}{}:
	default:
	}
}

// tend gets as many slots as there are places for durable tasks, gives back what
// is too many, and keeps the leases.
func (s *slots) tend() {
	l := s.lane
	lease := l.queue.Lease()
	tick := time.NewTicker(lease / 3)
	defer tick.Stop()
	for {
		s.balance(l.ctx)
		select {
		case <-tick.C:
			s.renew(l.ctx)
		case <-s.want:
		case <-l.ctx.Done():
			s.release()
			return
		}
	}
}

// balance acquires and releases.
func (s *slots) balance(ctx context.Context) {
	l := s.lane
	for {
		s.mu.Lock()
		have := len(s.held)
		s.mu.Unlock()
		// Live tasks take places too.
		places := int(l.performing.Load()) + max(0, l.host.Concurrency-int(l.host.active.Load()))
		if l.leaving.Load() {
			places = int(l.performing.Load())
		}
		goal := min(places, l.host.MeshConcurrency)
		switch {
		case have < goal:
			slot, err := l.cfg.Slots.Acquire(ctx, l.host.Entity, l.host.MeshConcurrency, l.host.id)
			if err != nil || slot == nil {
				return // all are taken, or the store is away: the next tick tries again
			}
			s.mu.Lock()
			s.held = append(s.held, slot)
			s.mu.Unlock()
			l.queue.Wake()
		case have > goal && have > int(l.performing.Load())+int(l.waiting.Load()):
			s.mu.Lock()
			slot := s.held[len(s.held)-1]
			s.held = s.held[:len(s.held)-1]
			s.mu.Unlock()
			_ = slot.Release(ctx)
		default:
			return
		}
	}
}

func (s *slots) renew(ctx context.Context) {
	s.mu.Lock()
	held := append([]Slot(nil), s.held...)
	s.mu.Unlock()
	for _, slot := range held {
		if err := slot.Renew(ctx); err != nil {
			s.lane.host.log.Warn("slot lost", "err", err)
			s.mu.Lock()
			for i, h := range s.held {
				if h == slot {
					s.held = append(s.held[:i], s.held[i+1:]...)
					break
				}
			}
			s.mu.Unlock()
		}
	}
}

func (s *slots) release() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slot := range s.held {
		_ = slot.Release(ctx)
	}
	s.held = nil
}
