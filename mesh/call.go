package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
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
	// memories that the caller shares with the receiver ([Task.HandedState]). The
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

// ErrInterrupted: [Task.Call] stopped waiting, because the caller's run was asked to pause
// or to move, or because its worker drains. The called task goes on. The handler should
// commit now, which parks or releases the run; if the commit succeeds, the request was
// withdrawn. Another Call with the same key returns the answer.
var ErrInterrupted = errors.New("the run was asked to stop while it waited for a call, which goes on")

// maxCallKey bounds the key of a call, in bytes.
const maxCallKey = 256

// CallID returns the id of the task that [Task.Call] sends under a key over the durable
// lane. It is derived from the run, the run's attempt and the key, so that the next owner of
// the run finds the same call. A call over the live lane has a new id.
func (t *Task) CallID(key string) string {
	at, _ := t.Envelope.Time()
	return envelope.DeriveID(t.Envelope.ID, at, t.callScope(), key)
}

// callScope returns a name for the current attempt of the run. Another attempt has another
// name, so a retried run sends its calls again.
func (t *Task) callScope() string {
	entity := t.Envelope.To
	if t.run == nil {
		return state.RunID(entity, t.Envelope.ID)
	}
	c := t.run.cp.Load()
	if c == nil {
		return t.run.id.Run
	}
	return fmt.Sprintf("%s/%d/%s", t.run.id.Run, c.Mesh.Attempt, lastRetry(c))
}

// outgoing is a call that a task makes.
type outgoing struct {
	*Task
	c *Call
	a *Answer // nil until the call's task is known
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
	h, o := t.host, &outgoing{Task: t, c: &c}
	switch {
	case c.Key == "" || len(c.Key) > maxCallKey:
		return nil, envelope.Errorf(envelope.CodeInternal, "a call needs a key, of at most %d bytes", maxCallKey)
	case subject.IsPerson(c.To):
		return o.askPerson(ctx)
	case client.PublishesTo(c.To):
		return nil, envelope.Errorf(envelope.CodeNoResponders, "%s has no worker that answers", clip.Text(c.To, 128))
	}
	if _, err := h.node.subjects.Live(c.To); err != nil {
		return nil, envelope.Errorf(envelope.CodeInternal, "a call to %s: %w", clip.Text(c.To, 128), err)
	}
	task, err := o.newTask()
	if err != nil {
		return nil, err
	}
	if err := t.tree.CheckBudget(ctx); err != nil {
		return nil, callError(err)
	}
	if c.State != nil {
		var ref *StateRef
		err := t.persist(ctx, func() (err error) {
			ref, err = h.storeCalled(ctx, t, c.Key, c.State)
			return err
		})
		if err != nil {
			return nil, callError(err)
		}
		task.Requires = withMember(task.Requires, requires.Context, wire.MustJSON(ref))
	}
	a := &Answer{TaskID: task.ID, Entity: c.To, Durable: o.hasLane(ctx), Began: time.Now()}
	o.a = a
	durable := a.Durable
	if !durable {
		err = o.live(ctx, task)
		durable = errors.Is(err, errLane)
	}
	if durable {
		a.Durable = true
		err = o.durable(ctx, task)
	}
	a.Ended = time.Now()
	a.read()
	return a, callError(err)
}

// newTask returns the envelope of a call, unsigned and without the deadline.
func (o *outgoing) newTask() (*envelope.Envelope, error) {
	intent := o.c.Intent
	if intent == "" {
		intent = intents.RunIntent(o.c.To)
	}
	payload := o.c.Payload
	if len(o.c.References) > 0 {
		var err error
		if payload, err = envelope.WithReferences(payload, o.c.References...); err != nil {
			return nil, envelope.Errorf(envelope.CodeInternal, "the references of a call to %s: %w", clip.Text(o.c.To, 128), err)
		}
	}
	e := envelope.New(envelope.TypeTask, o.host.Entity, o.c.To, intent, payload)
	e.Corr, e.Priority, e.Trace, e.ReplyTo = o.Envelope.Corr, o.Envelope.Priority, o.Envelope.Trace, o.Envelope.ID
	members := map[string]json.RawMessage{}
	if len(o.c.Requires) > 0 {
		if err := requires.SecretIn(wire.MustJSON(o.c.Requires)); err != nil {
			return nil, err
		}
	}
	for name, value := range o.c.Requires {
		switch name {
		case "timeout_ms", "stream", "human_approval", requires.Tree:
		default:
			members[name] = value
		}
	}
	if o.c.OnStream != nil {
		members["stream"] = json.RawMessage("true")
	}
	if err := o.inherit(members, true); err != nil {
		return nil, err
	}
	e.Requires = objectOf(members)
	return e, nil
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
