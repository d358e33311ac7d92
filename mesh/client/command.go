package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// Command sends a command about durable tasks (a cancel: also about live tasks) as the
// client's own entity, and returns the result. The command goes to all workers of the
// entity; the owner of the run applies it, or any worker if no worker owns the run. If no
// worker answers, the command is submitted to the work queue, and Command waits until a
// worker applies it or ctx ends. After an error that wraps [ErrQueued] the next worker applies it;
// after one that wraps [jetstream.ErrUncertain] it may.
func (c *Client) Command(ctx context.Context, entity string, cmd intents.Command) (intents.CommandResult, error) {
	var out intents.CommandResult
	d := c.cfg.Stores
	if d == nil {
		return out, sender.ErrLiveOnly
	}
	e, err := c.newCommand(entity, cmd)
	if err != nil {
		return out, err
	}
	reply, _, err := SendCommand(ctx, c, entity, e)
	if err != nil {
		return out, err
	}
	return out, wire.ReadJSON(reply.Payload, &out)
}

// ErrQueued: the command is in the work queue, and its answer was not awaited.
var ErrQueued = errors.New("the command is queued, and not answered yet")

// Queued adds [ErrQueued] to the error of a command that is in the work queue, unless the error is
// the answer.
func Queued(err error) error {
	var answer *envelope.Error
	if err == nil || errors.As(err, &answer) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrQueued, err)
}

// newCommand returns the envelope of a command for the durable lane. It refuses a command that no
// worker accepts, because the sender may never get the workers' answer.
func (c *Client) newCommand(entity string, cmd intents.Command) (*envelope.Envelope, error) {
	e := sender.NewCommand(c.cfg.Entity, entity, cmd)
	if e.Payload == nil {
		_, err := json.Marshal(cmd)
		return nil, fmt.Errorf("%s to %s: %w", e.Intent, entity, err)
	}
	durably(e)
	if err := intents.NewRegistry().Validate(e.Intent, intents.Task, e.Payload); err != nil {
		return nil, fmt.Errorf("%s to %s: %w", e.Intent, entity, err)
	}
	return e, nil
}

// durably marks a command as one for the durable lane. A transfer always is.
func durably(e *envelope.Envelope) {
	var members map[string]json.RawMessage
	if e.Intent != intents.TaskMigrate && json.Unmarshal(e.Payload, &members) == nil {
		members["durable"] = json.RawMessage("true")
		e.Payload = wire.MustJSON(members)
	}
}

// SendCommand sends a command to all workers of an entity, or over the work queue if no
// worker answers, and returns the reply. queued: the server has stored the command, so that a
// worker applies it also if ctx ends before the reply comes.
func SendCommand(ctx context.Context, c *Client, entity string, e *envelope.Envelope) (reply *envelope.Envelope, queued bool, err error) {
	reply, err = c.TryCommand(ctx, e)
	if !IsUnanswered(err) || ctx.Err() != nil {
		return reply, false, err
	}
	// Submit the same envelope to the queue. A worker that received it before ignores
	// the copy, because it knows the id.
	receipt, reply, err := c.Perform(ctx, e, SubmitOptions{}, ResultOptions{})
	queued = receipt.TaskID != ""
	if queued {
		err = Queued(err)
	}
	if err != nil {
		return nil, queued, fmt.Errorf("command to %s: %w", entity, err)
	}
	return reply, queued, nil
}

// TryCommand sends a command (NewCommand of package mesh) to all workers of its addressee, and
// waits two seconds for an answer of the worker that has the run. It returns an error reply as an
// [envelope.Error]. If no worker answers, [IsUnanswered] is true for the error, and the caller may
// [Client.Submit] the same envelope: a worker that did receive it ignores the copy.
func (c *Client) TryCommand(ctx context.Context, e *envelope.Envelope) (*envelope.Envelope, error) {
	reply, err := c.s.RequestControl(ctx, e, sender.ControlWait)
	switch {
	case err == nil && reply.Type == envelope.TypeError:
		return nil, envelope.ErrorOf(reply)
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return reply, err
}

// IsUnanswered reports whether err, of [Client.TryCommand], means that no worker answered: no
// worker is online, or none of them has the run or answers for it in time.
func IsUnanswered(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded)
}

// Run reads the last checkpoint of the run of an entity's task. id is the run's or the
// task's. It fails with [state.ErrNotFound].
func (c *Client) Run(ctx context.Context, entity, id string) (*state.Checkpoint, error) {
	d := c.cfg.Stores
	if d == nil {
		return nil, sender.ErrLiveOnly
	}
	rec, err := state.Record{}, state.ErrNotFound
	if len(id) <= state.MaxRun {
		rec, err = d.States.Get(ctx, state.ID{Entity: entity, Run: id})
	}
	if errors.Is(err, state.ErrNotFound) {
		rec, err = d.States.Get(ctx, state.ID{Entity: entity, Run: state.RunID(entity, id)})
	}
	if err != nil {
		return nil, err
	}
	return d.Codec.Read(rec)
}
