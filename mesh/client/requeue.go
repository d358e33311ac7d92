package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// Requeue submits the task of a run that goes on to the queue again, with a header
// that names the run. The message gets the next higher priority, because the run has
// waited in the queue before: so it is drawn ahead of tasks of its own priority that
// have not begun. The run's record keeps its own priority for everything else. The task is
// encoded as it came: the record has it as JSON, which may be larger than a message if it came as
// CBOR.
func Requeue(ctx context.Context, q *jetstream.Queue, c *state.Checkpoint) (jetstream.Submitted, error) {
	task, err := requeued(c, c.Mesh.Epoch)
	if err != nil {
		return jetstream.Submitted{}, err
	}
	return q.Submit(ctx, task)
}

// CheckRequeue returns an error if [Requeue] could not queue a run's task, or if workers with these
// limits would refuse it. It wraps state.ErrTooLarge if the message is larger than the server's
// max_payload or than the limit. A run of another platform was accepted under other limits.
func CheckRequeue(q *jetstream.Queue, c *state.Checkpoint, limits envelope.Limits) error {
	task, err := requeued(c, math.MaxUint64) // any epoch that the run may have later
	if err != nil {
		return err
	}
	if size, most := q.Size(task); most > 0 && size > most {
		return fmt.Errorf("%w: its message has %d bytes, the server's max_payload is %d", state.ErrTooLarge, size, most)
	}
	_, _, err = wire.Receive(&nats.Msg{Data: task.Data, Header: task.Header}, limits)
	if errors.Is(err, envelope.ErrTooLarge) {
		return fmt.Errorf("%w: %w", state.ErrTooLarge, err)
	}
	return err
}

// requeued returns the submission of a run's task, as the owner of an epoch submits it.
func requeued(c *state.Checkpoint, epoch uint64) (jetstream.Submission, error) {
	m := &c.Mesh
	body, header := []byte(m.Task), nats.Header{wire.HeaderRun: {c.Doc.RunID}}
	if m.CBOR {
		task, err := envelope.ParseStored(m.Task)
		if err != nil {
			return jetstream.Submission{}, fmt.Errorf("task of run %s: %w", c.Doc.RunID, err)
		}
		if inCBOR, err := task.AppendCBOR(nil); err == nil { // a task of another platform may have none
			body = inCBOR
			header.Set(wire.HeaderContentType, envelope.ContentCBOR)
		}
	}
	return jetstream.Submission{
		Entity: m.Entity, Priority: string(raised(envelope.Priority(m.Priority))), ID: fmt.Sprintf("%s.%d", c.Doc.RunID, epoch),
		Data: body, Header: header,
	}, nil
}

// Letter returns the body and the headers of a run's dead letter, by those of its message. A worker
// that the run moved to never received that message: then they are as [Requeue] submits the task. If the
// run was the retry of an earlier letter, they name that one, so that its permit is used up; the message
// of a run that was resumed since does not.
func Letter(c *state.Checkpoint, data []byte, header nats.Header) ([]byte, nats.Header, error) {
	if len(data) == 0 {
		task, err := requeued(c, c.Mesh.Epoch)
		if err != nil {
			return nil, nil, err
		}
		data, header = task.Data, task.Header
	}
	if retry := run.LastRetry(c); retry != "" {
		if header = maps.Clone(header); header == nil {
			header = nats.Header{}
		}
		header.Set(jetstream.HeaderRetry, strings.TrimPrefix(retry, run.RetryPrefix))
	}
	return data, header, nil
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
