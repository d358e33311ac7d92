package quota

import "testing"

// At least the last maxCounted messages are remembered, and not all of them for ever.
func TestTheLastMessagesAreRemembered(t *testing.T) {
	t.Parallel()
	var c Counted
	for seq := range uint64(3 * maxCounted) {
		c.Add(seq)
	}
	for seq := range uint64(maxCounted) {
		if last := 3*maxCounted - 1 - seq; !c.Has(last) {
			t.Fatalf("message %d is forgotten", last)
		}
	}
	if c.Has(0) {
		t.Error("the first message is still remembered")
	}
}
