package client

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// Requeue submits the task of a run that goes on to the queue again, with a header
// that names the run. The message gets the next higher priority, because the run has
// waited in the queue before: so it is drawn ahead of tasks of its own priority that
// have not begun. The run's record keeps its own priority for everything else.
func Requeue(ctx context.Context, q *jetstream.Queue, c *state.Checkpoint) (jetstream.Submitted, error) {
	m := &c.Mesh
	return q.Submit(ctx, jetstream.Submission{
		Entity: m.Entity, Priority: string(raised(envelope.Priority(m.Priority))), ID: fmt.Sprintf("%s.%d", c.Doc.RunID, m.Epoch),
		Data: m.Task, Header: nats.Header{wire.HeaderRun: {c.Doc.RunID}},
	})
}

// raised returns the next higher priority.
func raised(p envelope.Priority) envelope.Priority {
	switch p {
	case envelope.PriorityLow:
		return envelope.PriorityNormal
	case envelope.PriorityHigh, envelope.PriorityUrgent:
		return envelope.PriorityUrgent
	}
	return envelope.PriorityHigh
}
