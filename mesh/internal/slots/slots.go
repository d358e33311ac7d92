package slots

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/slot"
)

// Config configures [Slots]. T is a task.
type Config[T comparable] struct {
	Entity   string // the agent
	Instance string // this worker of it
	Most     int    // how many of the agent's tasks may run at once in the whole mesh
	Store    *slot.Store
	Log      *slog.Logger

	Places   func() int  // tasks that may begin in this worker now
	Drawn    func() int  // durable tasks that this worker has drawn and that have not begun
	Draining func() bool // no task begins any more
	// Announce tells the agent's other workers that tasks wait for slots here. They call
	// [Slots.Wanted].
	Announce func() error
	Acquired func() // called when a slot was acquired: another task may be drawn
	// Lost ends a task whose slot was lost.
	Lost func(task T, why *envelope.Error)

	Now func() time.Time // the server's time
	// Silent is called while this worker wants a slot, with another worker that holds one and may
	// have died: that worker has not renewed its slot in time, or has held it since before this
	// worker started.
	Silent func(ctx context.Context, holder string)
}

// Slots are the slots of one agent in one worker. Its methods may be called from many
// goroutines.
type Slots[T comparable] struct {
	cfg     Config[T]
	changed chan struct{} // signals that a place was freed or taken, or that another worker wants a slot
	got     chan *slot.Slot
	over    chan struct{} // closed when no more tasks begin

	releases sync.WaitGroup // those that are repeated

	mu      sync.Mutex
	free    []*heldSlot
	used    map[T]*heldSlot
	waiters []*waiter[T]
	back    []*heldSlot // to be released
	wanted  time.Time   // when another worker last announced that its tasks wait
	seeking bool        // acquire runs
	heard   time.Time   // when the store last answered acquire, or acquire began
}

type heldSlot struct {
	*slot.Slot
	renewed time.Time
	idle    time.Time // when the slot became spare
}

// waiter is a task that has a worker's place and waits for a slot.
type waiter[T comparable] struct {
	task T
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
	// releaseWait bounds the request that releases a slot, and the one that lists them.
	releaseWait = 2 * time.Second
	// firstLook is how long after its start a worker that has no slot yet looks for holders
	// that may have died before.
	firstLook = time.Second
	// awayEvery is how often a task that waits for a slot looks whether the store answers.
	awayEvery = time.Second
)

var (
	// ErrFull is returned by Enter if no slot became free in time.
	ErrFull = errors.New("no slot is free")
	// ErrClosed is returned by Enter if no more tasks begin.
	ErrClosed = errors.New("no more tasks begin")
	// ErrAway is returned by Enter if the store does not answer.
	ErrAway = errors.New("the slots cannot be reached")
)

// New returns the slots of a worker that has none yet.
func New[T comparable](cfg Config[T]) *Slots[T] {
	return &Slots[T]{cfg: cfg, changed: make(chan struct{}, 1), got: make(chan *slot.Slot), over: make(chan struct{}), used: map[T]*heldSlot{}}
}

// Close ends the waits in Enter: no more tasks begin. It is called once.
func (s *Slots[T]) Close() { close(s.over) }

// Room returns how many durable tasks may be drawn: the number of free slots that no waiting
// task needs. If tasks wait and there is no such slot, it returns 1, so that a durable task
// waits for a slot in line with the live ones.
func (s *Slots[T]) Room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free) - len(s.waiters); n > 0 || len(s.waiters) == 0 {
		return n
	}
	return 1
}

// Enter gives a slot to a task that has a worker's place. It waits for a slot for at most
// patience; 0: until ctx, the task's context, ends, or the store has not answered for as long as a
// lease lasts. It fails with the cause of ctx, [ErrFull], [ErrClosed] or [ErrAway].
func (s *Slots[T]) Enter(ctx context.Context, t T, patience time.Duration) error {
	s.mu.Lock()
	if last := len(s.free) - 1; last >= 0 && len(s.waiters) == 0 {
		s.used[t], s.free = s.free[last], s.free[:last]
		s.mu.Unlock()
		s.Signal() // Run acquires the next spare slot
		return nil
	}
	w := &waiter[T]{t, make(chan struct{})}
	s.waiters = append(s.waiters, w)
	s.mu.Unlock()
	s.Signal()
	enough := time.NewTimer(cmp.Or(patience, awayEvery))
	defer enough.Stop()
	var err error
	for err == nil {
		select {
		case <-w.got:
			return nil
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-enough.C:
			switch {
			case patience > 0:
				err = ErrFull
			case s.unheard(s.cfg.Store.Lease()):
				err = ErrAway
			}
			enough.Reset(awayEvery)
		case <-s.over:
			err = ErrClosed
		}
	}
	s.mu.Lock()
	if i := slices.Index(s.waiters, w); i >= 0 {
		s.waiters = slices.Delete(s.waiters, i, i+1)
	}
	s.mu.Unlock()
	s.Leave(t) // the task may have got a slot meanwhile
	return err
}

// Leave frees the slot of a task whose work has ended.
func (s *Slots[T]) Leave(t T) {
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
	s.Signal()
}

// give assigns a slot to the task that has waited longest, or keeps it as spare. s.mu
// is held.
func (s *Slots[T]) give(slot *heldSlot) {
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

// Signal lets Run look again at how many slots are needed. It does not block.
func (s *Slots[T]) Signal() {
	pause.Wake(s.changed)
}

// Wanted handles the announcement of a worker whose tasks wait for slots. The message is not
// authenticated; a forged message costs no more than this worker's spare slots.
func (s *Slots[T]) Wanted(instance string) {
	if instance == s.cfg.Instance {
		return
	}
	s.mu.Lock()
	s.wanted = time.Now()
	s.mu.Unlock()
	s.Signal()
}
