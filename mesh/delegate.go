package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// DefaultMaxHandoffs is how often a task may be handed on, from one agent to the
// next.
const DefaultMaxHandoffs = 8

// HandOff says to whom a task is handed on in the middle of its run, and with
// what (AAIF, Orchestration Topology, "Mid-run handoff").
type HandOff struct {
	// To is the entity that answers the task from here on. Required.
	To string
	// Intent is what the receiver is asked for. Default: the task's own, or the
	// receiver's run intent where the task's is this agent's run intent.
	Intent string
	// Payload is the receiver's input. Default: the task's own payload.
	Payload json.RawMessage
	// State goes along as an Agent State document: what of the conversation and
	// of the memory the receiver is to have. The mesh gives it a run id of its
	// own. nil: nothing goes along.
	State *state.Checkpoint
	// Reason is a few words for people: the timeline of the run has them.
	Reason string
}

// errHandedOff is in the chain of what [Task.HandOff] returns when the task ends
// here and somebody else answers it.
var errHandedOff = errors.New("the task is delegated")

// delegation is a hand-over that was prepared: it happens when the handler returns it.
type delegation struct {
	task *Task
	HandOff
	intent string
	state  *StateRef // nil: none
	id     string    // of the receiver's task
}

func (o *delegation) Error() string { return "the task is delegated to " + o.To }
func (o *delegation) Unwrap() error { return errHandedOff }

// IsHandedOff reports whether an error is that of a task that ends here because
// somebody else answers it: a handler that gets it from [Task.HandOff] returns it
// as it is.
func IsHandedOff(err error) bool { return errors.Is(err, errHandedOff) }

// HandOff hands the task on to another agent, which answers the task's own
// sender, on the reply subject that the sender waits on. It is a handler's last
// word:
//
//	return task.HandOff(ctx, mesh.HandOff{To: "agent.billing"})
//
// What it returns the handler returns as it is. The hand-over takes place after
// that: on the durable lane it is committed as the end of this run, and the
// receiver's task is queued from the record, so that a crash repeats and loses
// nothing. The receiver has what is left of the time.
//
// A receiver that cannot answer for others (an agent in another language, a
// person) is called instead, and what it says is returned, to be this agent's own
// answer; so it is with tasks that came as plain text, and those whose sender
// forbids it (requires.handoff: false). A durable run that waits for a person is
// parked meanwhile: its handler begins anew, and hands the task on again.
//
// A task that comes back to an agent that had it before, or was handed on
// Config.MaxHandoffs times, is refused with E_TREE_LIMIT; the handler may still
// answer itself.
func (t *Task) HandOff(ctx context.Context, h HandOff) (json.RawMessage, error) {
	o := &delegation{task: t, HandOff: h}
	if err := t.mayHandOff(o); err != nil {
		return nil, err
	}
	direct, knows, err := t.handsDirectly(ctx, o)
	if err != nil {
		return nil, err
	}
	if knows && h.State != nil {
		err := t.persist(ctx, func() (err error) {
			o.state, err = t.host.storeHanded(ctx, t, h.State)
			return err
		})
		if err != nil {
			return nil, err
		}
		if !direct {
			o.state.User = t.User()
		}
	}
	if !direct {
		return t.relay(ctx, o)
	}
	if t.Streaming() {
		if err := t.emit(mustJSON(map[string]string{"handed_to": h.To})); err != nil {
			return nil, err
		}
	}
	return nil, o
}

// mayHandOff refuses what leads nowhere, or in a circle.
func (t *Task) mayHandOff(o *delegation) error {
	if err := subject.ValidateEntity(o.To); err != nil {
		return envelope.Errorf(envelope.CodeInternal, "delegation: %w", err)
	}
	if subject.EntityType(o.To) == subject.TypeBus {
		return envelope.Errorf(envelope.CodeInternal, "delegation to %s: no worker answers there", o.To)
	}
	if o.Payload == nil {
		o.Payload = t.Envelope.Payload
		if with, err := envelope.WithReferences(o.Payload, t.reference()); err == nil && !subject.IsPerson(o.To) {
			o.Payload = with
		}
	}
	o.intent = o.Intent
	if o.intent == "" {
		o.intent = t.Envelope.Intent
		if o.intent == intents.RunIntent(t.host.Entity) || o.intent == intents.AgentAsk {
			o.intent = intents.RunIntent(o.To)
		}
	}
	chain := append(t.Chain(), t.host.Entity)
	if slices.Contains(chain, o.To) {
		return envelope.Errorf(envelope.CodeTreeLimit, "the task would come back to %s, which has delegated it already (%s)", o.To, chainText(chain))
	}
	if limit := t.host.node.cfg.MaxHandoffs; len(chain) > limit {
		return envelope.Errorf(envelope.CodeTreeLimit, "the task was delegated %s, which is the limit (%s)", run.Times(limit), chainText(chain))
	}
	return nil
}

// Chain are the entities that have handed the task on, the first one at first;
// empty where the task came from its sender. Those that called the next one,
// because it could not answer for them, are among them.
func (t *Task) Chain() []string {
	chain, _ := t.handedBy() // what cannot be read was refused
	if t.handed != nil {
		chain = append(chain, t.handed.links.Entities()...)
	}
	return chain
}

// Caller is who gets the answer: the task's from, or who sent the task to the
// first agent of the chain.
func (t *Task) Caller() string {
	if t.handed == nil {
		return t.Envelope.From
	}
	return t.handed.Caller
}

// handsDirectly reports whether the receiver can answer the task's sender, on
// the lane that the task came by, and whether it knows what to do with a state that
// comes along.
func (t *Task) handsDirectly(ctx context.Context, o *delegation) (direct, knows bool, err error) {
	if PublishesTo(o.To) {
		return false, false, nil
	}
	there, silent, says, err := t.host.extensionsOf(ctx, o.To)
	speaks := slices.Contains(says, intents.ExtHandoff)
	switch {
	case err != nil:
		return false, false, err
	case t.ask || t.ownWord:
		return false, speaks, nil
	case t.run == nil && !there:
		return false, false, envelope.Errorf(envelope.CodeUnavailable, "delegation: no worker serves %s", o.To)
	case t.run == nil || there && !silent && !speaks || slices.Contains(says, intents.ExtDurable):
		return speaks, speaks, nil
	}
	// Who serves the durable lane must be able to take a task over, so that one
	// may be handed on while none of its workers is there.
	durable, err := t.lookForLane(ctx, o.To)
	if err == nil && !durable && !there {
		err = envelope.Errorf(envelope.CodeUnavailable, "delegation: no worker serves %s", o.To)
	}
	return durable, durable || speaks, err
}

// askPatience is how long a receiver may take to say what it is able to do.
const askPatience = 2 * time.Second

// extensionsOf asks a worker of an entity which extensions it speaks
// (aee.spec.query), and so whether there is one. One that is silent may be busy.
func (h *host) extensionsOf(ctx context.Context, entity string) (there, silent bool, names []string, err error) {
	asking, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	ask := envelope.New(envelope.TypeTask, h.Entity, entity, intents.SpecQuery, nil)
	if err := h.sign(ask); err != nil {
		return false, false, nil, err
	}
	reply, err := h.node.Send(asking, ask, SendOptions{NoCancel: true})
	var problem *envelope.Error
	switch {
	case err == nil:
		var says intents.SpecQueryResult
		_ = json.Unmarshal(reply.Payload, &says) // what cannot be read names none
		return true, false, says.Extensions, nil
	case ctx.Err() != nil:
		return false, false, nil, context.Cause(ctx)
	case errors.Is(err, nats.ErrNoResponders):
		return false, false, nil, nil
	case errors.As(err, &problem) && problem.FromPeer():
		return true, false, nil, nil // it is there, and does not know the question
	case errors.As(err, &problem) && problem.Code == envelope.CodeTimeout:
		return true, true, nil, nil
	}
	return false, false, nil, err
}

// sign signs what does not go to the work queue.
func (h *host) sign(e *envelope.Envelope) error { return h.node.sign(e, h.Signer, false) }

// relay calls the receiver, and returns its answer as this agent's own. A durable
// run that waits for a person is parked meanwhile, and begins anew with the answer.
func (t *Task) relay(ctx context.Context, o *delegation) (json.RawMessage, error) {
	if subject.EntityType(o.To) == subject.TypeHuman {
		o.intent, o.Payload = o.Intent, o.forPerson()
	}
	call := Call{To: o.To, Intent: o.intent, Payload: o.Payload, Key: "handoff", Requires: relayed(t.Envelope.Requires)}
	call.Requires[requireHandedBy] = mustJSON(append(t.Chain(), t.host.Entity))
	if o.state != nil {
		call.Requires[requireContext] = mustJSON(o.state)
	}
	if t.Streaming() {
		call.OnStream = func(e *envelope.Envelope) error { return t.Emit(e.Payload) }
	}
	for {
		if t.run != nil { // with what the handler has staged: whoever goes on waits for the same call
			if err := t.run.Commit(ctx, state.Step{Kind: state.StepHandoff, Name: o.To, Detail: clip.Text(o.Reason, 128)}, nil); err != nil {
				return nil, err
			}
		}
		answer, err := t.Call(ctx, call)
		if errors.Is(err, ErrInterrupted) {
			continue // the commit parks, or the wish was taken back
		}
		return t.relayedAnswer(ctx, answer, err)
	}
}

func (t *Task) relayedAnswer(ctx context.Context, answer *Answer, err error) (json.RawMessage, error) {
	var waits *WaitsError
	switch {
	case errors.As(err, &waits) && t.run != nil:
		return nil, t.run.ParkUntil(ctx, Wake{On: []state.Wait{waits.Wait}}, nil)
	case err != nil:
		return nil, err
	}
	return answer.Envelope.Payload, nil
}

// What a person is shown at most of a conversation that is handed over.
const (
	personMessages = 20
	personText     = 2 << 10 // bytes of each
)

// forPerson is the payload with what a person should know besides, who has no
// Agent State to load: member handed_over.
func (o *delegation) forPerson() json.RawMessage {
	type said struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	over := struct {
		By           string `json:"by"`
		Reason       string `json:"reason,omitempty"`
		Conversation []said `json:"conversation,omitempty"`
	}{By: o.task.host.Entity, Reason: clip.Text(o.Reason, 128)}
	if o.State != nil {
		talk := o.State.Doc.Conversation
		for _, m := range talk[max(0, len(talk)-personMessages):] {
			over.Conversation = append(over.Conversation, said{string(m.Role), clip.Text(m.Content, personText)})
		}
	}
	members := map[string]json.RawMessage{}
	if json.Unmarshal(o.Payload, &members) != nil {
		return o.Payload
	}
	members["handed_over"] = mustJSON(over)
	return mustJSON(members)
}

// isHanded reports whether a task says that it was handed on, true or not.
func (t *Task) isHanded() bool {
	raw := t.required(requireHandoff)
	return len(raw) > 0 && raw[0] == '{'
}

// relayed are the sender's constraints that hold for whoever answers in its
// place: all but those that the mesh writes anew for each hop.
func relayed(requires json.RawMessage) map[string]json.RawMessage {
	members := map[string]json.RawMessage{}
	if requires == nil || json.Unmarshal(requires, &members) != nil {
		return map[string]json.RawMessage{}
	}
	for _, name := range []string{requireHandoff, requireContext, requireNotBefore, requireTree, requireMesh, requireLane, "timeout_ms", "stream"} {
		delete(members, name)
	}
	return members
}

// envelope is the receiver's task. Stream is how many stream envelopes this agent
// has sent, and epoch that of the run, 0 on the live lane.
func (o *delegation) envelope(stream int, epoch uint64) (*envelope.Envelope, error) {
	t := o.task
	e := envelope.New(envelope.TypeTask, t.host.Entity, o.To, o.intent, o.Payload)
	e.Corr, e.ReplyTo, e.Priority, e.Trace = t.Envelope.Corr, t.Envelope.ID, t.Envelope.Priority, t.Envelope.Trace
	t.span.inject(e)
	link, err := o.link()
	if err != nil {
		return nil, err
	}
	h := handed{Task: t.Envelope.ID, Caller: t.Envelope.From, Intent: t.Envelope.Intent}
	if t.handed != nil {
		h = *t.handed
	}
	h.Chain = append(slices.Clone(h.Chain), link)
	h.Stream, h.Epoch, h.State = stream, h.Epoch+epoch, o.state

	members := map[string]json.RawMessage{}
	if t.Envelope.Requires != nil {
		if err := json.Unmarshal(t.Envelope.Requires, &members); err != nil {
			return nil, err
		}
	}
	delete(members, requireNotBefore)
	delete(members, requireContext)
	delete(members, requireMesh) // a run that came from another platform may name that one's
	delete(members, requireLane)
	if r := t.run; r != nil {
		h.Deadline = r.deadline
		if h.Digest == "" {
			h.Digest = taskDigest(t.Envelope)
		}
		// It may be queued later than it was made: after a crash.
		members[requireNotBefore] = mustJSON(r.lane.clock.now().UTC().Format(time.RFC3339Nano))
	}
	members[requireHandoff] = mustJSON(h)
	left := t.left()
	if left <= 0 {
		return nil, deadlineError(t)
	}
	members["timeout_ms"] = mustJSON(max(1, left.Milliseconds()))
	if err := t.inherit(members, false); err != nil {
		return nil, err
	}
	e.Requires = mustJSON(members)
	if err := t.host.node.sign(e, t.host.Signer, t.run != nil); err != nil {
		return nil, err
	}
	o.id = e.ID
	return e, nil
}

// left is what is left of the sender's time, whatever this agent's own limit is.
func (t *Task) left() time.Duration {
	if t.run != nil {
		return t.run.deadline.Sub(t.run.lane.clock.now())
	}
	requires, _ := t.Envelope.Requirements()
	cfg := &t.host.node.cfg
	timeout := requires.Timeout
	if timeout == 0 {
		timeout = cfg.DefaultTimeout
	}
	return time.Until(t.queued.Add(min(timeout, cfg.MaxTimeout)))
}

// encodeFor is an envelope in the encoding that the task's sender speaks, with
// the header that says so.
func (t *Task) encodeFor(e *envelope.Envelope) (body []byte, header nats.Header, err error) {
	header = nats.Header{}
	if parent := t.span.traceparent(); parent != "" {
		header[t.host.TraceHeader] = []string{parent}
	}
	if t.cbor {
		header[headerContentType] = []string{envelope.ContentCBOR}
		body, err = e.AppendCBOR(nil)
	} else {
		body, err = e.AppendJSON(nil)
	}
	if err != nil {
		return nil, nil, outputError(err)
	}
	if limit := int(t.host.node.conn.MaxPayload()) - headerRoom; limit > 0 && len(body) > limit {
		return nil, nil, envelope.Errorf(envelope.CodeTooLarge, "delegation: the task has %d bytes, a message takes %d", len(body), limit)
	}
	return body, header, nil
}
