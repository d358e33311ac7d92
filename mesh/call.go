package mesh

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/calls"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// Call is a task that an agent sends while it works on one of its own: a hop of
// a tree of tasks.
type Call = client.Call

// Answer is the outcome of a [Call].
type Answer = client.Answer

// A PendingError says that a task of the run has not been answered. A durable run does
// not occupy a worker while it waits: its handler does its other work, then parks with
// [Run.ParkUntil], and makes the same call again when it is started again after the wake.
type PendingError = calls.PendingError

// Errors of [Task.Call], for errors.Is.
var (
	// ErrAnswerPending is wrapped by the error of a call that was sent and whose answer may take
	// days: see [PendingError].
	ErrAnswerPending = calls.ErrAnswerPending
	// ErrInterrupted: [Task.Call] stopped waiting, because the caller's run was asked to pause
	// or to move, or because its worker drains. The called task goes on. The handler should
	// commit now, which parks or releases the run; if the commit succeeds, the request was
	// withdrawn. Another Call with the same key returns the answer.
	ErrInterrupted = calls.ErrInterrupted
)

// CallID returns the id of the task that [Task.Call] sends under a key over the durable
// lane. It is derived from the run, the run's attempt and the key, so that the next owner of
// the run finds the same call. A call over the live lane has a new id.
func (t *Task) CallID(key string) string {
	if t.run == nil {
		return run.CallID(nil, t.Envelope, state.RunID(t.Envelope.To, t.Envelope.ID), key)
	}
	return run.CallID(t.run.checkpoint(), t.Envelope, t.run.ID(), key)
}

// Call sends a task to another agent, in the name of this one, and waits for its
// answer. The task has the corr, the priority, the trace and the human_approval of
// t, its reply_to is t's id, and its deadline lies within t's. So a task and all tasks that
// are sent for it form a tree, and every worker enforces the tree's bounds
// (docs/nats-binding.md, "Trees").
//
// If t is a durable task and the receiver has the durable lane, the call goes over that
// lane: it is done once even after crashes, and a second Call with the same key returns the
// same answer. Over the live lane each Call is done at most once. If no worker answers
// there, or all are busy, Call retries for a few seconds. If no worker serves the receiver at
// all, the call of a durable task is retried until its timeout (see FailFast), and goes over
// the durable lane if the first worker that appears has one.
//
// A task for a person goes into the person's inbox, and the answer may take days. Therefore
// the call of a durable task then fails with [ErrAnswerPending], and so does every call with the same
// key until the answer is stored. See [Run.ParkUntil]. A call to an agent also fails with
// ErrAnswerPending if the called run is parked and waits for an answer itself, unless OnStream or
// Uninterrupted is set.
//
// When ctx or t ends, Call cancels the called task, except if another worker continues t's
// run. Every error wraps an [*envelope.Error], except [ErrInterrupted], [ErrAnswerPending], [ErrLost]
// and [ErrParked]. The Answer is not nil if the task was sent.
func (t *Task) Call(ctx context.Context, c Call) (*Answer, error) {
	a, err := t.caller().Call(ctx, c)
	return a, callError(err)
}

// callError converts an error to an [*envelope.Error], except the errors of the run:
// ErrInterrupted, ErrAnswerPending, ErrLost and ErrParked.
func callError(err error) error {
	var told *envelope.Error
	switch {
	case err == nil, errors.Is(err, ErrInterrupted), errors.Is(err, ErrAnswerPending), errors.Is(err, ErrLost), errors.Is(err, ErrParked), errors.As(err, &told):
		return err
	}
	return fault.ForPeer(err)
}

// Withdraw voids the task that was sent under a key: its answer is not needed any more.
// If a person has the task and has not answered, the person is told.
func (t *Task) Withdraw(ctx context.Context, key, reason string) {
	if t.run != nil {
		t.caller().WithdrawSent(ctx, key, reason)
	}
}

// caller returns t for package internal/calls.
func (t *Task) caller() *calls.Task {
	out := &calls.Task{Agent: &t.host.calls, Port: callTask{t}, Envelope: t.Envelope, Deadline: t.Deadline, Tree: &t.tree}
	if t.run != nil {
		out.Run = t.run.caller()
	}
	return out
}

// callTask is a task as [calls.TaskPort].
type callTask struct{ *Task }

// Persist is [durableRun].persist for a durable task. For a live task, whose sender waits and
// may retry, it calls f once.
func (t callTask) Persist(ctx context.Context, f func() error) error {
	if t.run == nil {
		return f()
	}
	return t.run.persist(ctx, f)
}

func (t callTask) Inherit(members map[string]json.RawMessage) error { return t.inherit(members, true) }

func (t callTask) StoreState(ctx context.Context, key string, c *state.Checkpoint) (json.RawMessage, error) {
	ref, err := t.storeCalled(ctx, key, c)
	return wire.MustJSON(ref), err
}

func (t callTask) Stopped() bool {
	t.ctxMu.Lock()
	defer t.ctxMu.Unlock()
	return t.stopCause != nil
}
