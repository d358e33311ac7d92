package mesh

import "testing"

// A task that takes the last spare slot has another one sought at once: where a worker
// stops, the next one must not take its runs over one by one, at each tick of its lane.
func TestATaskThatTakesASpareSlotHasAnotherOneSought(t *testing.T) {
	t.Parallel()
	s := newSlots(nil)
	s.free = []*heldSlot{{}}
	if err := s.enter(&Task{}, 0); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.changed:
	default:
		t.Error("no other slot is sought")
	}
}
