package mesh

import (
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
)

// TreeOwner is the owner of the counters of the tree that a task begins.
func TreeOwner(task *envelope.Envelope) string {
	return subject.TreeOwner + (&Task{Envelope: task}).treeKey()
}
