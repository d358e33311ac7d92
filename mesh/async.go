package mesh

import (
	"context"
	"errors"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// job is the payload that answers a live task of an asynchronous agent (AAIF,
// Runtime Configuration: "return a job ID immediately and execute in the
// background").
type job struct {
	JobID   string `json:"job_id"`  // the task's id, under which its result is kept
	RunID   string `json:"run_id"`  // of its run, for commands and checkpoints
	Subject string `json:"replies"` // where stream envelopes and the result come
}

// later reports whether a live task is to be moved to the durable lane (see background).
func (h *host) later(t *Task) bool {
	return h.Async && h.joined() != nil && t.run == nil && !t.ask && t.handed == nil && !intents.Reserved(t.Envelope.Intent)
}

// background moves a live task to the durable lane, and answers it with the job id once
// the task is stored. It blocks on the store, so it must not run on the subscription's
// goroutine.
func (h *host) background(t *Task) {
	ctx, cancel := context.WithTimeout(h.taskScope, sched.LookTimeout)
	defer cancel()
	result, err := h.submitJob(ctx, t)
	if err != nil {
		var never *envelope.Error
		if !errors.As(err, &never) && !errors.Is(err, jetstream.ErrTooLarge) {
			err = envelope.Errorf(envelope.CodeUnavailable, "the task cannot be stored for now: %w", err)
		}
		h.fail(t, err)
		return
	}
	h.succeed(t, wire.MustJSON(result))
}

// submitJob puts the task into the queue. It returns an *envelope.Error for one that can never be stored.
func (h *host) submitJob(ctx context.Context, t *Task) (job, error) {
	e := t.Envelope
	replies, err := h.node.subjects.Reply(h.Entity, e.ID)
	if err != nil {
		return job{}, longID()
	}
	s := jetstream.Submission{Entity: h.Entity, Priority: string(e.Priority), ID: e.ID}
	if s.Data, s.Header, err = t.encode(e); err != nil { // Config.Limits permit more than the default limits
		return job{}, envelope.Errorf(envelope.CodeInvalidEnvelope, "the task cannot be stored: %w", err)
	}
	if _, err := h.node.cfg.Durable.Queue.Submit(ctx, s); err != nil {
		return job{}, err
	}
	return job{JobID: e.ID, RunID: state.RunID(h.Entity, e.ID), Subject: replies}, nil
}
