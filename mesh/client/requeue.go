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
// have not begun. The run's record keeps its own priority for everything else. The task is
// encoded as it came: the record has it as JSON, which may be larger than a message if it came as
// CBOR.
func Requeue(ctx context.Context, q *jetstream.Queue, c *state.Checkpoint) (jetstream.Submitted, error) {
	m := &c.Mesh
	body, header := []byte(m.Task), nats.Header{wire.HeaderRun: {c.Doc.RunID}}
	if m.CBOR {
		task, err := envelope.ParseStored(m.Task)
		if err != nil {
			return jetstream.Submitted{}, fmt.Errorf("task of run %s: %w", c.Doc.RunID, err)
		}
		if body, err = task.AppendCBOR(nil); err != nil {
			return jetstream.Submitted{}, fmt.Errorf("task of run %s: %w", c.Doc.RunID, err)
		}
		header.Set(wire.HeaderContentType, envelope.ContentCBOR)
	}
	return q.Submit(ctx, jetstream.Submission{
		Entity: m.Entity, Priority: string(raised(envelope.Priority(m.Priority))), ID: fmt.Sprintf("%s.%d", c.Doc.RunID, m.Epoch),
		Data: body, Header: header,
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
