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
	"github.com/aeemesh/aeemesh/state"
)

// Call is a task that an agent sends while it works on one of its own: a hop of
// a tree of tasks.
type Call struct {
	// To is the entity that is to do it. Required.
	To string
	// Intent is what is asked of it. Default [intents.RunIntent] of To.
	Intent string
	// Payload is a JSON object. Default {}.
	Payload json.RawMessage
	// Key names the call within the run: the same key is the same call, also
	// after a crash. A second try of something that failed needs a key of its
	// own. At most 256 bytes. Required.
	Key string
	// Timeout is how long the call may take at most; what is left of the task's
	// own time holds in any case. Default: that.
	Timeout time.Duration
	// Requires are further members of requires, such as format. Those that the
	// mesh writes itself (timeout_ms, stream, human_approval, tree) are not taken
	// from here.
	Requires map[string]json.RawMessage
	// References are envelopes that the call builds on, such as the result of an
	// earlier one ([Answer].Envelope and [envelope.Envelope.Refer]). They stand in
	// payload.references, behind those that are there.
	References []envelope.Reference
	// State goes along as an Agent State document, by reference: what of its
	// memories the caller passes on ([Task.HandedState]). It is stored once for the
	// key. Who does not know what that is sees a member of requires that it does not
	// know, and a person sees nothing of it. nil: nothing goes along.
	State *state.Checkpoint
	// OnStream gets the stream envelopes in order; it makes the call ask for
	// them. An error from it gives the call up.
	OnStream func(*envelope.Envelope) error
	// Live never sends over the durable lane.
	Live bool
	// Impatient is for a call that somebody else may do as well: where nobody
	// serves To, a durable task waits no longer for a worker than a live one.
	Impatient bool
	// Whole waits for the answer although the run was asked to stop: Call does
	// not fail with [ErrInterrupted].
	Whole bool
	// Begun, if set, is told the id and the lane of the task just before it is
	// sent: once for each try.
	Begun func(taskID string, durable bool)
}

// Answer is what came of a [Call].
type Answer struct {
	TaskID   string             // of the task that was sent, the last one where it was tried again
	Entity   string             // who answered, or was asked
	Durable  bool               // it went over the durable lane
	Envelope *envelope.Envelope // the terminal envelope; nil: there is none
	Began    time.Time
	Ended    time.Time
	Usage    state.Usage // as far as the result tells
}

// ErrInterrupted ends a call over the durable lane whose run was asked to pause,
// to move or, because its worker stops, to go on elsewhere. The task that was sent
// goes on: whoever commits now parks or hands the run on, or may go on itself, and
// gets the answer by calling again under the same key.
var ErrInterrupted = errors.New("the run was asked to stop while it waited for a call, which goes on")

// maxCallKey bounds the key of a call, in bytes.
const maxCallKey = 256

// CallID is the id of the task that [Task.Call] sends under a key over the durable
// lane. It follows from the run, the attempt that it is in and the key, so that a
// worker that takes the run over finds the same call. A call over the live lane
// has an id of its own.
func (t *Task) CallID(key string) string {
	at, _ := t.Envelope.Time()
	return envelope.DeriveID(t.Envelope.ID, at, t.callScope(), key)
}

// callScope tells the calls of one attempt of a run from those of another: what
// is tried again asks anew.
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

// Call sends a task to another agent, in the name of this one, and waits for its
// answer. The task has the corr, the priority, the trace and the human_approval of
// t, its reply_to is t's id, and its deadline lies within t's: so all tasks that
// come of one make a tree, whose bounds every worker enforces (docs/nats-binding.md,
// "Trees").
//
// The call of a durable task goes over the durable lane where the other has one:
// it is done once, whatever crashes, and calling again under the same key returns
// the answer of the first. Over the live lane it is done at most once each time
// that it is called. When nobody answers there, or is busy, it waits a little for
// somebody; and that of a durable task as long as its time lasts where nobody
// serves the other at all, on whichever lane its first worker then has.
//
// A person is asked over the inbox, and may take days: then the call of a durable
// task fails with [ErrWaits], and so does each under its key until there is an
// answer. See [Run.ParkUntil]. So does the call of an agent that is found to wait
// for somebody itself, unless its stream is listened to, or it is Whole.
//
// When ctx ends, or t does, the other is asked to stop, unless t's run only goes
// on elsewhere. An error has an [*envelope.Error] in its chain, but for
// [ErrInterrupted], [ErrWaits], [ErrLost] and [ErrParked]; the answer is there with it as soon
// as something was sent.
func (t *Task) Call(ctx context.Context, c Call) (*Answer, error) {
	h := t.host
	switch {
	case c.Key == "" || len(c.Key) > maxCallKey:
		return nil, envelope.Errorf(envelope.CodeInternal, "a call needs a key, of at most %d bytes", maxCallKey)
	case subject.IsPerson(c.To):
		return t.askPerson(ctx, &c)
	case PublishesTo(c.To):
		return nil, envelope.Errorf(envelope.CodeNoResponders, "%s has no worker that answers", clip.Text(c.To, 128))
	}
	if _, err := h.node.subjects.Live(c.To); err != nil {
		return nil, envelope.Errorf(envelope.CodeInternal, "a call to %s: %w", clip.Text(c.To, 128), err)
	}
	task, err := t.callTask(&c)
	if err != nil {
		return nil, err
	}
	if err := h.node.solvent(ctx, t); err != nil {
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
		task.Requires = withMember(task.Requires, requireContext, mustJSON(ref))
	}
	a := &Answer{TaskID: task.ID, Entity: c.To, Durable: t.hasLane(ctx, &c), Began: time.Now()}
	durable := a.Durable
	if !durable {
		err = t.callLive(ctx, &c, task, a)
		durable = errors.Is(err, errLane)
	}
	if durable {
		a.Durable = true
		err = t.callDurable(ctx, &c, task, a)
	}
	a.Ended = time.Now()
	a.read()
	return a, callError(err)
}

// callTask is the envelope of a call, unsigned and without its deadline.
func (t *Task) callTask(c *Call) (*envelope.Envelope, error) {
	intent := c.Intent
	if intent == "" {
		intent = intents.RunIntent(c.To)
	}
	payload := c.Payload
	if len(c.References) > 0 {
		var err error
		if payload, err = envelope.WithReferences(payload, c.References...); err != nil {
			return nil, envelope.Errorf(envelope.CodeInternal, "the references of a call to %s: %w", clip.Text(c.To, 128), err)
		}
	}
	e := envelope.New(envelope.TypeTask, t.host.Entity, c.To, intent, payload)
	e.Corr, e.Priority, e.Trace, e.ReplyTo = t.Envelope.Corr, t.Envelope.Priority, t.Envelope.Trace, t.Envelope.ID
	members := map[string]json.RawMessage{}
	if len(c.Requires) > 0 {
		if err := secretIn(mustJSON(c.Requires)); err != nil {
			return nil, err
		}
	}
	for name, value := range c.Requires {
		switch name {
		case "timeout_ms", "stream", "human_approval", requireTree:
		default:
			members[name] = value
		}
	}
	if c.OnStream != nil {
		members["stream"] = json.RawMessage("true")
	}
	if err := t.inherit(members, true); err != nil {
		return nil, err
	}
	e.Requires = mustJSON(members)
	return e, nil
}

// callError makes sure that an error can be told, but for those that are about the
// run itself.
func callError(err error) error {
	var told *envelope.Error
	switch {
	case err == nil, errors.Is(err, ErrInterrupted), errors.Is(err, ErrWaits), errors.Is(err, ErrLost), errors.Is(err, ErrParked), errors.As(err, &told):
		return err
	}
	return border(err)
}

// read takes from the terminal envelope what it tells of itself.
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

// lastRetry is the command that opened a run again which had ended, "" where none
// did.
func lastRetry(c *state.Checkpoint) (last string) {
	for _, id := range c.Mesh.Commands {
		if strings.HasPrefix(id, "retry.") {
			last = id
		}
	}
	return last
}
