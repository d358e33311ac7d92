package agents

import (
	"context"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/state"
)

// journal is where a run is written down, step by step. The [mesh.Run] of a
// durable task is one; that of a live task is [live], which keeps nothing.
//
// What a method returns as an error ends the run here, and is returned from
// Handle as it is.
type journal interface {
	// Commit writes the run down, changed as change says, before the next step
	// begins. Change may be nil, and may be called again.
	Commit(ctx context.Context, step state.Step, change func(*state.Checkpoint) error) error
	// Stage leaves the end of a step to the next write: there is nothing to lose
	// between the two. The change is made then, before that of the write.
	Stage(step state.Step, change func(*state.Checkpoint) error) error
	// Park writes the run down as one that nobody is to go on with for now.
	Park(ctx context.Context, status aaif.RunStatus, change func(*state.Checkpoint) error) error
	// Asked is closed once the run is to stop between two steps.
	Asked() <-chan struct{}
	// Steering are the messages that wait for the next turn.
	Steering() []state.Steer
	// Told is what was streamed of the turn that is under way.
	Told() string
}

// live is the journal of a task on the live lane: it ends with its worker, so
// nothing is written down.
type live struct{}

func (live) Commit(ctx context.Context, _ state.Step, _ func(*state.Checkpoint) error) error {
	return ctx.Err()
}
func (live) Stage(state.Step, func(*state.Checkpoint) error) error { return nil }
func (live) Park(context.Context, aaif.RunStatus, func(*state.Checkpoint) error) error {
	panic("agents: a live task cannot be parked")
}
func (live) Asked() <-chan struct{}  { return nil }
func (live) Steering() []state.Steer { return nil }
func (live) Told() string            { return "" }
