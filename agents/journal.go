package agents

import (
	"context"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/state"
)

// journal persists a run, step by step. For a durable task it is the task's
// [mesh.Run]; for a live task it is [live], which stores nothing.
//
// An error of one of its methods ends the run in this process, and Handle
// returns it unchanged.
type journal interface {
	// Commit stores the run, with change applied to its checkpoint, before the
	// next step begins. Change may be nil, and may be called more than once.
	Commit(ctx context.Context, step state.Step, change func(*state.Checkpoint) error) error
	// Stage leaves a step to be stored by the next Commit or Park, if nothing
	// would be lost in between. Its change is applied then, before that of the
	// write.
	Stage(step state.Step, change func(*state.Checkpoint) error) error
	// Park stores the run as parked: no worker resumes it until it is woken.
	Park(ctx context.Context, status aaif.RunStatus, change func(*state.Checkpoint) error) error
	// StopRequested is closed when the run is to stop between two steps.
	StopRequested() <-chan struct{}
	// Steering returns the steering messages that wait for the next turn.
	Steering() []state.Steer
	// SentText is the text that was streamed of the current turn.
	SentText() string
}

// live is the journal of a task on the live lane: the run ends with its worker,
// so nothing is stored.
type live struct{}

func (live) Commit(ctx context.Context, _ state.Step, _ func(*state.Checkpoint) error) error {
	return ctx.Err()
}
func (live) Stage(state.Step, func(*state.Checkpoint) error) error { return nil }
func (live) Park(context.Context, aaif.RunStatus, func(*state.Checkpoint) error) error {
	panic("agents: a live task cannot be parked")
}
func (live) StopRequested() <-chan struct{} { return nil }
func (live) Steering() []state.Steer        { return nil }
func (live) SentText() string               { return "" }
