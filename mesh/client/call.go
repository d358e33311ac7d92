package client

import (
	"encoding/json"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// Call is a task that an agent sends while it works on one of its own: a hop of
// a tree of tasks. mesh.Task.Call sends it.
type Call struct {
	// To is the entity that gets the task. Required.
	To string
	// Intent is the intent of the task. Default [intents.RunIntent] of To.
	Intent string
	// Payload is a JSON object. Default {}.
	Payload json.RawMessage
	// Key names the call within the run: the same key is the same call, also
	// after a crash. To retry a failed call, use another key. At most 256 bytes.
	// Required.
	Key string
	// Timeout limits the call. The rest of the task's own time limits it in any
	// case, and is the default.
	Timeout time.Duration
	// Requires are further members of requires, such as format. Members that the
	// mesh writes itself (timeout_ms, stream, human_approval, tree) are ignored here.
	Requires map[string]json.RawMessage
	// References are envelopes that the call builds on, such as the result of an
	// earlier call ([Answer].Envelope and [envelope.Envelope.Refer]). They are
	// appended to payload.references.
	References []envelope.Reference
	// State is sent with the call as a reference to an Agent State document: the
	// memories that the caller shares with the receiver (HandedState of its task). The
	// document is stored once for the key. A receiver that does not support it sees an
	// unknown member of requires; a person does not see it. nil: no document is sent.
	State *state.Checkpoint
	// OnStream gets the stream envelopes in order. If it is set, the call requests a
	// stream. An error from it cancels the call.
	OnStream func(*envelope.Envelope) error
	// Live never sends over the durable lane.
	Live bool
	// FailFast is for a call that another agent could do instead. If no worker serves
	// To, the call of a durable task fails as soon as the call of a live task would.
	FailFast bool
	// Uninterrupted makes Call wait for the answer of an agent even if the run is asked to pause
	// or to move, or its worker drains: Call does not fail with mesh.ErrInterrupted. It does
	// not fail with mesh.ErrAnswerPending either when the called run is parked.
	Uninterrupted bool
	// Begun, if set, is called with the id and the lane of the task just before the
	// task is sent, also for a retry under a new id.
	Begun func(taskID string, durable bool)
}

// Answer is the outcome of a [Call].
type Answer struct {
	TaskID   string             // of the task that was sent; of the last one if Call retried
	Entity   string             // the entity that answered; if none did, the receiver
	Durable  bool               // the task went over the durable lane
	Envelope *envelope.Envelope // the terminal envelope; nil: there is none
	Began    time.Time
	Ended    time.Time
	Usage    state.Usage // as stated in the result
}
