package mesh

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// slots enforces an agent's concurrency limit across the mesh (AAIF runtime.concurrency):
// each of its tasks, live or durable, runs in a slot. The slots of a dead worker expire with
// their lease. A worker that cannot renew a slot fails (live) or releases (durable) the
// slot's task.
//
// A worker keeps spare slots, as many as are in use and at least one, so that the next task
// need not wait. It releases slots that are unused for a while, because each renewal is a
// write at the server. A worker whose tasks wait announces that on the agent's control
// subject. Then the other workers release their spare slots, and for a short time also the
// slot of each task that ends, so that any worker can acquire it.
type slots struct {
	lane    *lane
	changed chan struct{} // signals that a place was freed or taken, or that another worker wants a slot
	got     chan *jetstream.Slot
	over    chan struct{} // closed when no more tasks begin

	mu      sync.Mutex
	free    []*heldSlot
	used    map[*Task]*heldSlot
	waiters []*waiter
	back    []*heldSlot // to be released
	wanted  time.Time   // when another worker last announced that its tasks wait
}

type heldSlot struct {
	*jetstream.Slot
	renewed time.Time
	idle    time.Time // when the slot became spare
}

// waiter is a task that has a worker's place and waits for a slot.
type waiter struct {
	task *Task
	got  chan struct{} // closed when the task has a slot
}

const (
	// wantEvery is the pause between two announcements of a worker that its tasks wait
	// for slots. wantSoon is the shortest pause, used when another task begins to wait.
	wantEvery = 100 * time.Millisecond
	wantSoon  = wantEvery / 10
	// wantLasts is how long a worker keeps no spare slots after another worker's
	// announcement.
	wantLasts = 3 * wantEvery
	// spareLeases is the number of leases after which an unused surplus slot is released.
	spareLeases = 2
	// slotPatience is how long a drawn durable task waits for a slot before it is nakked,
	// so that another worker can take it.
	slotPatience = 2 * time.Second
)

// headerSlots marks the announcement that tasks wait for slots. Its value is the instance id
// of the announcing worker. The message has no body.
const headerSlots = "Aee-Slots-Wanted"

func newSlots(l *lane) *slots {
	return &slots{lane: l, changed: make(chan struct{}, 1), got: make(chan *jetstream.Slot), over: make(chan struct{}), used: map[*Task]*heldSlot{}}
}

// room returns how many durable tasks may be drawn: the number of free slots that no waiting
// task needs. If tasks wait and there is no such slot, it returns 1, so that a durable task
// waits for a slot in line with the live ones.
func (s *slots) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free) - len(s.waiters); n > 0 || len(s.waiters) == 0 {
		return n
	}
	return 1
}

// enter gives a slot to a task that has a worker's place. It waits for a slot for at most
// patience; 0: until the task ends.
func (s *slots) enter(t *Task, patience time.Duration) error {
	s.mu.Lock()
	if last := len(s.free) - 1; last >= 0 && len(s.waiters) == 0 {
		s.used[t], s.free = s.free[last], s.free[:last]
		s.mu.Unlock()
		s.signal() // tend acquires the next spare slot
		return nil
	}
	w := &waiter{t, make(chan struct{})}
	s.waiters = append(s.waiters, w)
	s.mu.Unlock()
	s.signal()
	var enough <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		enough = timer.C
	}
	ctx := t.context()
	var err error
	select {
	case <-w.got:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-enough:
		err = busy(s.lane.host.Entity)
	case <-s.over:
		err = drainingError(s.lane.host.Entity)
	}
	s.mu.Lock()
	if i := slices.Index(s.waiters, w); i >= 0 {
		s.waiters = slices.Delete(s.waiters, i, i+1)
	}
	s.mu.Unlock()
	s.leave(t) // the task may have got a slot meanwhile
	return err
}

// leave frees the slot of a task whose work has ended.
func (s *slots) leave(t *Task) {
	s.mu.Lock()
	if slot := s.used[t]; slot != nil {
		delete(s.used, t)
		if time.Since(s.wanted) < wantLasts {
			s.back = append(s.back, slot) // for the next waiting task, at this or another worker
		} else {
			s.give(slot)
		}
	}
	s.mu.Unlock()
	s.signal()
}

// give assigns a slot to the task that has waited longest, or keeps it as spare. s.mu
// is held.
func (s *slots) give(slot *heldSlot) {
	if len(s.waiters) == 0 {
		slot.idle = time.Now()
		s.free = append(s.free, slot)
		return
	}
	w := s.waiters[0]
	s.waiters = s.waiters[1:]
	s.used[w.task] = slot
	close(w.got)
}

func (s *slots) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// onWanted handles the message of a worker whose tasks wait for slots. The message is not
// authenticated; a forged message costs no more than this worker's spare slots.
func (s *slots) onWanted(instance string) {
	if instance == s.lane.host.id {
		return
	}
	s.mu.Lock()
	s.wanted = time.Now()
	s.mu.Unlock()
	s.signal()
}

// announceWanted announces to the agent's other workers that tasks wait for slots at this worker. It
// reports whether any task waits.
func (s *slots) announceWanted() bool {
	h := s.lane.host
	s.mu.Lock()
	n := len(s.waiters)
	s.mu.Unlock()
	if n == 0 {
		return false
	}
	if err := h.node.sender.Publish(h.ctl, nil, nats.Header{headerSlots: {h.id}}); err != nil {
		h.log.Debug("cannot announce that tasks wait for slots", "err", err)
	}
	return true
}

// tend acquires slots for the tasks and spare slots, and renews their leases.
func (s *slots) tend() {
	l := s.lane
	tick := time.NewTicker(l.cfg.Slots.Lease() / 4)
	defer tick.Stop()
	again := time.NewTimer(wantEvery) // fires while tasks wait for slots at this or another worker
	defer again.Stop()
	set := true // again will fire
	var said time.Time
	var seeking context.CancelFunc // cancels a running Acquire; nil: none runs
	var seekers sync.WaitGroup
	for {
		want, contended := s.balance()
		switch {
		case want && seeking == nil:
			var ctx context.Context
			ctx, seeking = context.WithCancel(l.ctx)
			seekers.Go(func() {
				slot, err := l.cfg.Slots.Acquire(ctx, l.host.Entity, l.host.MeshConcurrency, l.host.id)
				if err != nil && ctx.Err() == nil {
					l.host.log.Warn("slot not acquired", "err", err)
					_ = sleep(ctx, time.Second)
				}
				s.got <- slot
			})
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
				l.queue.Wake()
			}
		case <-tick.C:
			s.renew()
		case <-again.C:
			set = false
		case <-s.changed:
		case <-l.ctx.Done():
			if seeking != nil {
				seeking()
				s.keep(<-s.got)
			}
			seekers.Wait()
			s.release()
			return
		}
	}
}

// keep adds a slot that was just acquired. It ignores nil.
func (s *slots) keep(slot *jetstream.Slot) {
	if slot == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give(&heldSlot{Slot: slot, renewed: time.Now()})
}

// balance releases slots that are not needed. It reports whether another slot is wanted, and
// whether tasks wait for slots at this or another worker.
func (s *slots) balance() (want, contended bool) {
	l := s.lane
	s.mu.Lock()
	elsewhere := time.Since(s.wanted) < wantLasts
	used, need := len(s.used), len(s.waiters)
	goal, most := used+need, used+need
	if !elsewhere {
		places := max(0, l.host.Concurrency-int(l.host.active.Load()))
		goal += min(places, max(1, used))
		most += places
	}
	if l.draining.Load() {
		goal, most = used, used
	}
	goal, most = min(goal, l.host.MeshConcurrency), min(most, l.host.MeshConcurrency)
	surplus := s.back
	s.back = nil
	// The most recently freed slot is used first, so the slots at the front have been idle
	// longest.
	for n := used + len(s.free); len(s.free) > int(l.deliveries.waiting.Load()) && (n > most || n > goal && time.Since(s.free[0].idle) > spareLeases*l.cfg.Slots.Lease()); n-- {
		surplus, s.free = append(surplus, s.free[0]), s.free[1:]
	}
	want = used+len(s.free) < goal
	s.mu.Unlock()
	for _, slot := range surplus {
		s.drop(slot)
	}
	return want, elsewhere || need > 0
}

func (s *slots) drop(slot *heldSlot) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := slot.Release(ctx); err != nil {
		s.lane.host.log.Debug("slot not released; it ends with its lease", "err", err)
	}
}

// renew renews the leases of all slots. A slot that was lost, or that could not be renewed for
// three quarters of its lease, is given to [slots.lost].
func (s *slots) renew() {
	l := s.lane
	s.mu.Lock()
	all := slices.Clone(s.free)
	for _, slot := range s.used {
		all = append(all, slot)
	}
	s.mu.Unlock()
	var renewals sync.WaitGroup
	for _, slot := range all {
		renewals.Go(func() {
			ctx, cancel := context.WithTimeout(l.ctx, l.cfg.Slots.Lease()/4)
			defer cancel()
			err := slot.Renew(ctx)
			switch {
			case err == nil:
				slot.renewed = time.Now()
			case errors.Is(err, state.ErrChanged), errors.Is(err, jetstream.ErrChanged), time.Since(slot.renewed) > l.cfg.Slots.Lease()*3/4:
				s.lost(slot, err)
			}
		})
	}
	renewals.Wait()
}

func (s *slots) lost(slot *heldSlot, why error) {
	lease := s.lane.cfg.Slots.Lease()
	gone := envelope.Errorf(envelope.CodeUnavailable, "JetStream was unreachable for too long: the task's slot (runtime.concurrency) could not be renewed within its lease of %v", lease).WithCause(why)
	if errors.Is(why, jetstream.ErrChanged) {
		gone = envelope.Errorf(envelope.CodeUnavailable, "the lease (%v) of the task's slot (runtime.concurrency) expired before it was renewed", lease).WithCause(why)
	}
	s.lane.host.log.Warn("slot lost", "err", why)
	var task *Task
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
			task = t
		}
	}
	s.mu.Unlock()
	switch {
	case task == nil:
	case task.run != nil:
		s.lane.releaseRunning(task, gone)
	default:
		s.lane.host.end(task, gone)
	}
}

func (s *slots) release() {
	s.mu.Lock()
	all := append(s.free, s.back...)
	for _, slot := range s.used {
		all = append(all, slot)
	}
	s.free, s.back, s.used = nil, nil, map[*Task]*heldSlot{}
	s.mu.Unlock()
	for _, slot := range all {
		s.drop(slot)
	}
}
