package calls

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// Call is a task that an agent sends while it works on one of its own: a hop of
// a tree of tasks.
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
	// or to move, or its worker drains: Call does not fail with [ErrInterrupted]. It does
	// not fail with [ErrAnswerPending] either when the called run is parked.
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

// ErrInterrupted: a call stopped waiting, because the caller's run was asked to pause
// or to move, or because its worker drains. The called task goes on. The handler should
// commit now, which parks or releases the run; if the commit succeeds, the request was
// withdrawn. Another Call with the same key returns the answer.
var ErrInterrupted = errors.New("the run was asked to stop while it waited for a call, which goes on")

// maxCallKey bounds the key of a call, in bytes.
const maxCallKey = 256

// ID returns the id of the task that a call sends under a key over the durable lane. It is
// derived from the run, the run's attempt and the key, so that the next owner of the run finds
// the same call. c is the run's last checkpoint; nil: there is none.
func ID(task *envelope.Envelope, run string, c *state.Checkpoint, key string) string {
	scope := run
	if c != nil { // a retried run sends its calls again
		scope = fmt.Sprintf("%s/%d/%s", run, c.Mesh.Attempt, lastRetry(c))
	}
	at, _ := task.Time()
	return envelope.DeriveID(task.ID, at, scope, key)
}

// read sets Entity and Usage from the terminal envelope.
func (a *Answer) read() {
	if a.Envelope == nil {
		return
	}
	a.Entity = a.Envelope.From
	var result struct {
		Usage struct {
			Input  int64     `json:"input_tokens"`
			Output int64     `json:"output_tokens"`
			Cost   model.USD `json:"cost_usd"`
		} `json:"usage"`
	}
	if a.Envelope.Type == envelope.TypeResult && json.Unmarshal(a.Envelope.Payload, &result) == nil {
		u := result.Usage
		a.Usage = state.Usage{InputTokens: max(0, u.Input), OutputTokens: max(0, u.Output), CostNanoUSD: max(0, int64(u.Cost))}
	}
}

// take sets the envelope that answers the call, and returns its error if it is one.
func (a *Answer) take(reply *envelope.Envelope) error {
	a.Envelope = reply
	if reply.Type == envelope.TypeError {
		return envelope.ErrorOf(reply)
	}
	return nil
}

// lastRetry returns the id of the last command that retried the run after it was
// dead-lettered, "" if there is none.
func lastRetry(c *state.Checkpoint) (last string) {
	for _, id := range c.Mesh.Commands {
		if strings.HasPrefix(id, "retry.") {
			last = id
		}
	}
	return last
}
