package slots

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A task that takes the last spare slot has another one sought at once: where a worker
// stops, the next one must not take its runs over one by one, at each tick of its lane.
func TestATaskThatTakesASpareSlotHasAnotherOneSought(t *testing.T) {
	t.Parallel()
	s := New(Config[int]{})
	s.free = []*heldSlot{{}}
	if err := s.Enter(t.Context(), 1, 0); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.changed:
	default:
		t.Error("no other slot is sought")
	}
}

func TestAWaitForASlotEnds(t *testing.T) {
	t.Parallel()
	s := New(Config[int]{})
	if err := s.Enter(t.Context(), 1, time.Nanosecond); !errors.Is(err, ErrFull) {
		t.Errorf("without patience: %v", err)
	}
	why := errors.New("cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := s.Enter(ctx, 1, 0); !errors.Is(err, why) {
		t.Errorf("of a cancelled task: %v", err)
	}
	s.Close()
	if err := s.Enter(t.Context(), 1, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("after the close: %v", err)
	}
	if len(s.waiters) > 0 || s.Room() != 0 {
		t.Errorf("%d still wait, room for %d", len(s.waiters), s.Room())
	}
}

// The slot of a task that ends is for the task that has waited longest; while another
// worker's tasks wait it is released, so that any worker can acquire it.
func TestTheSlotOfATaskThatEndsIsForTheNext(t *testing.T) {
	t.Parallel()
	s := New(Config[int]{Instance: "a"})
	slot := &heldSlot{}
	s.used[1] = slot
	entered := make(chan error)
	go func() { entered <- s.Enter(t.Context(), 2, 0) }()
	for waiting := 0; waiting == 0; {
		<-s.changed
		s.mu.Lock()
		waiting = len(s.waiters)
		s.mu.Unlock()
	}
	if s.Room() != 1 {
		t.Errorf("room for %d, want 1: a durable task waits in line", s.Room())
	}
	s.Leave(1)
	if err := <-entered; err != nil || s.used[2] != slot {
		t.Fatalf("%v, %v", err, s.used)
	}
	s.Wanted("a") // its own announcement
	s.Leave(2)
	if len(s.free) != 1 || len(s.back) > 0 {
		t.Fatalf("%d spare, %d to be released", len(s.free), len(s.back))
	}
	if err := s.Enter(t.Context(), 3, 0); err != nil {
		t.Fatal(err)
	}
	s.Wanted("b")
	s.Leave(3)
	if len(s.free) > 0 || len(s.back) != 1 {
		t.Errorf("%d spare, %d to be released", len(s.free), len(s.back))
	}
}
