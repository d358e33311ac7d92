package mesh

import (
	"fmt"
	"testing"
)

// The message of a run that was lost during its transfer is its new owner's: Requeue
// touches nothing, and here there is nothing that it could touch.
func TestARunThatWasLostOnItsWayIsNotRequeued(t *testing.T) {
	t.Parallel()
	stopped{}.Requeue(fmt.Errorf("checkpoint of a run: %w", ErrLost))
}
