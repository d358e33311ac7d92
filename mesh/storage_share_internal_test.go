package mesh

import (
	"testing"

	"github.com/aeemesh/aeemesh/jetstream"
)

// A worker reads the figures again once it has written a step since the last reading: workers of
// other agents may have written as much, and the store may be nearly full by now.
func TestOldFiguresOfAStoreAreReadAgain(t *testing.T) {
	t.Parallel()
	var s share
	s.known.Store(&[]jetstream.Share{{MaxBytes: 3200, Used: 0.6, Own: 0.1}})
	s.step.Store(100)
	if s.mightExceed(99) {
		t.Error("the figures are doubted after less than a step")
	}
	if !s.mightExceed(100) {
		t.Error("the figures are trusted after a step")
	}
}
