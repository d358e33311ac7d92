package mesh

import (
	"context"
	"encoding/json"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/calls"
	"github.com/aeemesh/aeemesh/mesh/internal/delegated"
	"github.com/aeemesh/aeemesh/state"
)

// The live lane does not know the durable lane. This file declares what it needs of that lane;
// the types lane and Run implement it, and serve.go puts the two together.

// durableLane is the durable lane of an agent, as its host sees it: a *lane.
type durableLane interface {
	// openQueue opens the lane's consumers, unless ctx ends.
	openQueue(ctx context.Context)
	// join starts the lane, now or when its streams exist.
	join(ctx context.Context)
	// stopDrawing stops drawing tasks. From now on a run is released at the end of its step.
	stopDrawing()
	// close waits for the outcomes that are being stored, and stops the lane.
	close()

	// report returns the lane's status. If the lane has a problem, it also returns what the agent's
	// health is because of it, and the reason.
	report() (status any, health, reason string)

	// command applies a command to the runs of the agent. It returns a function that does what needs
	// a store, nil if there is nothing to do. found says that it has ended a live task; answer sends
	// its result.
	command(t *Task, signed, found bool, answer func(result json.RawMessage)) (look func())
	// betweenWorkers returns the function that answers tasks with this intent, which workers of
	// the agent send one another; nil for any other intent.
	betweenWorkers(intent string) func(*Task)

	// slotsWanted notes that tasks of another worker wait for slots.
	slotsWanted(instance string)
	// enterSlot gives a slot to a task that has one of the agent's places, if the agent has a limit
	// across the mesh. It waits for at most patience; 0: until the task ends.
	enterSlot(t *Task, patience time.Duration) error
	// noSlots reports whether no task gets a slot because JetStream is away.
	noSlots() bool
	// leaveSlot frees the task's slot.
	leaveSlot(t *Task)
}

// joined returns the agent's durable lane, nil if it has none or the streams do not exist yet.
func (h *host) joined() durableLane {
	if h.node.durable() == nil {
		return nil
	}
	return h.durable
}

// durableRun is the run of a durable task, as the task sees it: a taskRun.
type durableRun interface {
	// ID returns the run's id.
	ID() string
	// checkpoint returns the run's last checkpoint, nil before the run is claimed.
	checkpoint() *state.Checkpoint
	// vouchedBy returns the platform that states who sent the task, "" if this mesh has verified
	// the sender itself.
	vouchedBy() string

	// storedAt returns when the server stored the task.
	storedAt() time.Time
	// goesOn reports whether the run has begun before.
	goesOn() bool
	// proves reports whether the run's record shows that the chain of its task was verified when the
	// run began, or, if known is true, that it was not good.
	proves(h *delegated.Handed) (proven, known bool)
	// limit sets the task's timeout and deadline: from the time at which the server stored it, within
	// the deadlines of its tree and of the agents that delegated it, as far as they are read.
	limit()
	// until returns the deadline by the server's clock.
	until() time.Time
	// overdue returns the error of a task whose deadline has passed.
	overdue() *envelope.Error

	// perform runs the task in the place of the agent that it has.
	perform()
	// finish ends the task with a payload or an error; with a *delegation, another agent goes on
	// with it. Task.claim has returned true to the caller.
	finish(payload json.RawMessage, failure error)
	// nakUnbegun returns a task that has not begun to the queue.
	nakUnbegun(pause time.Duration)
	// releaseRunning ends the handler's context, and releases the run.
	releaseRunning(cause error)

	// emit sends a stream envelope.
	emit(payload json.RawMessage) error
	// caller returns the run for package internal/calls.
	caller() *calls.Run
	// persist calls f until it succeeds, or fails for good.
	persist(ctx context.Context, f func() error) error
	// Commit and ParkUntil: see [Run].
	Commit(ctx context.Context, step state.Step, change func(*state.Checkpoint) error) error
	ParkUntil(ctx context.Context, wake Wake, change func(*state.Checkpoint) error) error
}
