package mesh

import (
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh/internal/bounds"
)

// TreeOwner is the owner of the counters of the tree that a task begins.
func TreeOwner(task *envelope.Envelope) string {
	return subject.TreeOwner + bounds.DerivedKey(task)
}
