package mesh

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/delegated"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// Delegation names the receiver of a delegated task and the input that the receiver gets
// (AAIF, Orchestration Topology, "Mid-run handoff").
type Delegation struct {
	// To is the receiver: the entity that will answer the task. Required.
	To string
	// Intent is the intent of the receiver's task. Default: the task's own intent. If
	// that is this agent's run intent or aee.ask, or that of an exchange ([intents.Inner]), the
	// default is the receiver's run intent.
	Intent string
	// Payload is the receiver's input. Default: the task's own payload.
	Payload json.RawMessage
	// State is sent with the task as an Agent State document: the part of the
	// conversation and the memories that the receiver gets. The mesh gives the document
	// a run id of its own. nil: no document is sent.
	State *state.Checkpoint
	// Reason is a short text for people. The timeline of the run shows it.
	Reason string
}

// DelegationKey is the key of the [Call] that [Task.Delegate] makes where the task cannot be
// delegated.
const DelegationKey = "handoff"

// errDelegated is wrapped by the error that [Task.Delegate] returns when another agent will
// answer the task.
var errDelegated = errors.New("the task is delegated")

// delegation is the error that [Task.Delegate] returns. The task is delegated when the
// handler returns this error.
type delegation struct {
	task *Task
	Delegation
	intent string
	state  *StateRef // nil: none
	id     string    // the id of the receiver's task
}

func (o *delegation) Error() string { return "the task is delegated to " + o.To }
func (o *delegation) Unwrap() error { return errDelegated }

// IsDelegated reports whether an error comes from [Task.Delegate] and says that another
// agent will answer the task. The handler must return such an error.
func IsDelegated(err error) bool { return errors.Is(err, errDelegated) }

// Delegate delegates the task to another agent. That agent answers the original sender, on
// the sender's reply subject. Delegate is the last call of a handler:
//
//	return task.Delegate(ctx, mesh.Delegation{To: "agent.billing"})
//
// The handler returns both results unchanged. The task is delegated after the handler has
// returned. On the durable lane the last checkpoint of this run holds the receiver's task,
// and the task is queued from there, so a crash neither loses nor duplicates it. The
// receiver gets the rest of the sender's timeout.
//
// In four cases Delegate calls the receiver instead, and returns the receiver's answer as
// this agent's own: the receiver does not support delegation (a person, or an agent that
// does not speak the extension), the task came as plain text, the sender forbids
// delegation (requires.handoff: false), or the run was transferred here from another platform,
// whose sender would not believe the receiver. A durable run that waits for a person is parked.
// When the answer is stored, the run's handler starts again and calls Delegate again.
//
// Delegate fails with E_TREE_LIMIT if the receiver had the task before, or if the task was
// delegated Config.MaxHandoffs times already. The handler may then answer the task itself.
func (t *Task) Delegate(ctx context.Context, h Delegation) (payload json.RawMessage, err error) {
	if hook := t.host.OnDelegate; hook != nil {
		var end func(error)
		ctx, end = hook(ctx, h)
		defer func() {
			if IsDelegated(err) {
				end(nil)
				return
			}
			end(err)
		}()
	}
	o := &delegation{task: t, Delegation: h}
	if err := o.prepare(); err != nil {
		return nil, err
	}
	direct, knows, err := o.receiverSupports(ctx)
	if err != nil {
		return nil, err
	}
	if knows && h.State != nil {
		err := callTask{t}.Persist(ctx, func() (err error) {
			o.state, err = t.storeHanded(ctx, h.State)
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
		return o.relay(ctx)
	}
	if t.run != nil && t.run.checkpoint().Mesh.Pending != "" { // the run stops here, unless the request is withdrawn
		if err := o.commit(ctx); err != nil {
			return nil, err
		}
	}
	if t.Streaming() {
		if err := t.emit(wire.MustJSON(map[string]string{"handed_to": h.To})); err != nil {
			return nil, err
		}
	}
	return nil, o
}

// prepare fills in the payload and the intent of a delegation. It fails if no worker
// can answer at the receiver, if the receiver had the task before, or if the task was
// delegated too often.
func (o *delegation) prepare() error {
	t := o.task
	if err := subject.ValidateEntity(o.To); err != nil {
		return envelope.Errorf(envelope.CodeInternal, "delegation: %w", err)
	}
	if subject.EntityType(o.To) == subject.TypeBus {
		return envelope.Errorf(envelope.CodeInternal, "delegation to %s: no worker answers there", o.To)
	}
	if o.Payload == nil {
		o.Payload = t.Envelope.Payload
		if t.served.input != nil {
			o.Payload = t.served.input
		}
		if with, err := envelope.WithReferences(o.Payload, t.reference()); err == nil && !subject.IsPerson(o.To) {
			o.Payload = with
		}
	}
	o.intent = o.Intent
	if o.intent == "" {
		o.intent = t.Intent()
		if o.intent == intents.RunIntent(t.host.Entity) || o.intent == intents.AgentAsk || intents.Inner(o.intent) {
			o.intent = intents.RunIntent(o.To)
		}
	}
	return delegated.MayGoTo(o.To, append(t.Chain(), t.host.Entity), t.host.node.cfg.MaxHandoffs)
}

// Chain returns the entities that delegated the task, the oldest first. The list includes an
// agent that called the next agent, because the next agent does not support delegation. The
// list is empty if the sender sent the task to this agent directly.
func (t *Task) Chain() []string {
	chain, _ := t.handedBy() // checkProvenance has refused an unreadable list
	if t.handed != nil {
		chain = append(chain, t.handed.Links.Entities()...)
	}
	return chain
}

// Caller returns the entity that gets the answer: the task's from, or, for a delegated
// task, the sender of the original task.
func (t *Task) Caller() string {
	if t.handed == nil {
		return t.Envelope.From
	}
	return t.handed.Caller
}

// receiverSupports looks up what the receiver supports. direct: the receiver can answer the
// task's sender on the task's lane. knows: the receiver can read a state document that is
// sent with the task.
func (o *delegation) receiverSupports(ctx context.Context) (direct, knows bool, err error) {
	t := o.task
	if client.PublishesTo(o.To) {
		return false, false, nil
	}
	there, silent, says, asked := t.host.extensionsOf(ctx, o.To)
	speaks := slices.Contains(says, intents.ExtHandoff)
	switch {
	case asked != nil && !silent:
		return false, false, asked
	case t.ask || t.mustAnswerItself || t.transferredHere():
		return false, speaks, nil
	case asked != nil && t.run == nil:
		return false, false, asked
	case t.run == nil && !there:
		return false, false, envelope.Errorf(envelope.CodeUnavailable, "delegation: no worker serves %s", o.To)
	case t.run == nil || there && !silent && !speaks || slices.Contains(says, intents.ExtDurable):
		return speaks, speaks, nil
	}
	// Every agent with a durable lane must support delegation (docs/nats-binding.md). So a
	// task can be delegated to such an agent while none of its workers is online.
	durable, err := t.caller().LookForLane(ctx, o.To)
	switch {
	case err != nil || durable:
	case !there:
		err = envelope.Errorf(envelope.CodeUnavailable, "delegation: no worker serves %s", o.To)
	default:
		err = asked // the worker was busy
	}
	return durable, durable || speaks, err
}

// transferredHere reports whether the task's run was transferred here from another platform.
func (t *Task) transferredHere() bool {
	if t.run == nil {
		return false
	}
	c := t.run.checkpoint()
	return c != nil && c.Mesh.TransferredHere()
}

// askPatience is how long extensionsOf waits for the answer to aee.spec.query.
const askPatience = 2 * time.Second

// extensionsOf asks a worker of an entity for its extensions (aee.spec.query). there reports
// whether a worker is online, and silent whether that worker did not answer in time. If it
// answered until then that it is busy, err is that answer.
func (h *host) extensionsOf(ctx context.Context, entity string) (there, silent bool, names []string, err error) {
	asking, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	var reply *envelope.Envelope
	var busy *envelope.Error
	for try := 0; ; try++ {
		ask := envelope.New(envelope.TypeTask, h.Entity, entity, intents.SpecQuery, nil)
		if err := h.sign(ask); err != nil {
			return false, false, nil, err
		}
		reply, err = h.node.Send(asking, ask, client.SendOptions{NoCancel: true})
		var delay time.Duration
		busy, delay = sender.WorthRetrying(err, try)
		if busy == nil || !busy.FromPeer() || !pause.For(asking, delay) {
			break
		}
	}
	var problem *envelope.Error
	switch {
	case err == nil:
		var says intents.SpecQueryResult
		_ = wire.ReadJSON(reply.Payload, &says) // an unreadable answer names no extensions
		return true, false, says.Extensions, nil
	case ctx.Err() != nil:
		return false, false, nil, context.Cause(ctx)
	case errors.Is(err, nats.ErrNoResponders):
		return false, false, nil, nil
	case busy != nil && busy.FromPeer():
		return true, true, nil, err
	case errors.As(err, &problem) && problem.FromPeer():
		return true, false, nil, nil // a worker answered with an error: it does not know aee.spec.query
	case errors.As(err, &problem) && problem.Code == envelope.CodeTimeout:
		return true, true, nil, nil
	}
	return false, false, nil, err
}

// sign signs an envelope that is not put into the work queue.
func (h *host) sign(e *envelope.Envelope) error { return h.node.sign(e, h.Signer, false) }

// relay calls the receiver and returns the receiver's answer as this agent's own. A
// durable run that waits for a person is parked; its handler starts again when the answer
// is stored.
func (o *delegation) relay(ctx context.Context) (json.RawMessage, error) {
	t := o.task
	if subject.EntityType(o.To) == subject.TypeHuman {
		o.intent, o.Payload = o.Intent, delegated.ForPerson(o.Payload, t.host.Entity, o.Reason, o.State)
	}
	call := Call{To: o.To, Intent: o.intent, Payload: o.Payload, Key: DelegationKey, Requires: delegated.Relayed(t.Envelope.Requires)}
	call.Requires[requires.HandedBy] = wire.MustJSON(append(t.Chain(), t.host.Entity))
	if o.state != nil {
		call.Requires[requires.Context] = wire.MustJSON(o.state)
	}
	if t.Streaming() {
		call.OnStream = func(e *envelope.Envelope) error { return t.Emit(e.Payload) }
	}
	for {
		if t.run != nil { // the next owner of the run waits for the same call
			if err := o.commit(ctx); err != nil {
				return nil, err
			}
		}
		answer, err := t.Call(ctx, call)
		if errors.Is(err, ErrInterrupted) {
			continue // the next Commit parks or releases the run, unless the pending request was withdrawn
		}
		return t.relayedAnswer(ctx, answer, err)
	}
}

// commit ends a step of the run, which stores what the handler has staged.
func (o *delegation) commit(ctx context.Context) error {
	return o.task.run.Commit(ctx, state.Step{Kind: state.StepHandoff, Name: o.To, Detail: clip.Text(o.Reason, 128)}, nil)
}

func (t *Task) relayedAnswer(ctx context.Context, answer *Answer, err error) (json.RawMessage, error) {
	var waits *PendingError
	switch {
	case errors.As(err, &waits) && t.run != nil:
		return nil, t.run.ParkUntil(ctx, Wake{On: []state.Wait{waits.Wait}}, nil)
	case err != nil:
		return nil, err
	}
	return answer.Envelope.Payload, nil
}

// envelope makes the receiver's task. stream is the number of stream envelopes that this
// agent has sent; epoch is the epoch of the run, 0 on the live lane, and steering its messages for the
// next turn.
func (o *delegation) envelope(stream int, epoch uint64, steering []state.Steer) (*envelope.Envelope, error) {
	t := o.task
	e := envelope.New(envelope.TypeTask, t.host.Entity, o.To, o.intent, o.Payload)
	e.Corr, e.ReplyTo, e.Priority, e.Trace = t.Envelope.Corr, t.Envelope.ID, t.Envelope.Priority, t.Envelope.Trace
	t.span.Inject(e)
	h, err := t.handed.Next(t.Envelope, t.host.Entity, o.To, t.host.sign)
	if err != nil {
		return nil, err
	}
	h.Stream, h.Epoch, h.State, h.Steering = stream, h.Epoch+epoch, o.state, steering

	members := map[string]json.RawMessage{}
	if t.Envelope.Requires != nil {
		if err := json.Unmarshal(t.Envelope.Requires, &members); err != nil {
			return nil, err
		}
	}
	delete(members, requires.NotBefore)
	delete(members, requires.Context)
	delete(members, requires.Mesh) // a run that came from another platform may name that platform's mesh
	delete(members, requires.Lane)
	if t.run != nil {
		h.Deadline = t.run.until()
		if h.Digest == "" {
			h.Digest = wire.TaskDigest(t.Envelope)
		}
		// After a crash the task may be queued long after this envelope was made.
		// requires.not_before keeps its ts from being refused as stale.
		members[requires.NotBefore] = wire.MustJSON(t.host.node.clock.now().UTC().Format(time.RFC3339Nano))
	}
	members[requires.Handoff] = wire.MustJSON(h)
	left := t.left()
	if left <= 0 {
		return nil, deadlineError(t)
	}
	members["timeout_ms"] = wire.MustJSON(max(1, left.Milliseconds()))
	if err := t.inherit(members, false); err != nil {
		return nil, err
	}
	e.Requires = wire.MustJSON(members)
	if err := t.host.node.sign(e, t.host.Signer, t.run != nil); err != nil {
		return nil, err
	}
	o.id = e.ID
	return e, nil
}

// left returns the rest of the sender's timeout. The agent's own Timeout does not count.
func (t *Task) left() time.Duration {
	if t.run != nil {
		return t.run.until().Sub(t.host.node.clock.now())
	}
	requires, _ := t.Envelope.Requirements()
	cfg := &t.host.node.cfg
	timeout := cmp.Or(requires.Timeout, cfg.DefaultTimeout)
	return time.Until(t.queued.Add(min(timeout, cfg.MaxTimeout)))
}

// encode encodes an envelope in the encoding of the task (JSON or CBOR), and returns the
// headers to send with it.
func (t *Task) encode(e *envelope.Envelope) (body []byte, header nats.Header, err error) {
	header = nats.Header{}
	if parent := t.span.Traceparent(); parent != "" {
		header[t.host.TraceHeader] = []string{parent}
	}
	if t.cbor {
		header[wire.HeaderContentType] = []string{envelope.ContentCBOR}
		body, err = e.AppendCBOR(nil)
	} else {
		body, err = e.AppendJSON(nil)
	}
	return body, header, err
}

// encodeFor is encode for a task that is delegated: it must fit a message.
func (t *Task) encodeFor(e *envelope.Envelope) (body []byte, header nats.Header, err error) {
	if body, header, err = t.encode(e); err != nil {
		return nil, nil, fault.Output(err)
	}
	if limit := int(t.host.node.conn.MaxPayload()) - headerRoom; limit > 0 && len(body) > limit {
		return nil, nil, envelope.Errorf(envelope.CodeTooLarge, "delegation: the task has %d bytes, a message can have at most %d", len(body), limit)
	}
	return body, header, nil
}

// delegate ends a task whose handler returned a delegation. It sends the receiver's task
// (live lane), or ends the run with it (durable lane).
func (h *host) delegate(t *Task, o *delegation) {
	if t.run != nil {
		if t.claim() {
			t.run.finish(nil, o)
		}
		return
	}
	switch claimed, err := h.passOn(t, o); {
	case !claimed: // cancelled meanwhile, or overdue
	case err != nil:
		problem := fault.ForPeer(err)
		h.count(t, problem)
		h.answer(t, problem)
		h.recordEnd(t, problem)
	default:
		h.recordDelegated(t, o)
	}
}

// passOn sends the receiver of a live task its task, unless the task has ended already.
func (h *host) passOn(t *Task, o *delegation) (claimed bool, err error) {
	h.delegating.RLock()
	defer h.delegating.RUnlock()
	if !t.claim() {
		return false, nil
	}
	if err := h.sendDelegated(t, o); err != nil {
		return true, err
	}
	h.passed.Add(t.Envelope, t.KeyID, delegated.At{To: o.To, ID: o.id}, t.left())
	return true, nil
}

// recordDelegated publishes the handed_off event and records the end of a delegated task.
func (h *host) recordDelegated(t *Task, o *delegation) {
	t.delegatedTo = o
	t.PublishStep(intents.RunHandedOff, intents.StepEvent{To: o.To, Child: o.id, Durable: t.run != nil, Detail: o.Reason})
	h.recordEnd(t, nil)
}

// sendDelegated sends the receiver its task, with the reply subject of this task's sender.
func (h *host) sendDelegated(t *Task, o *delegation) error {
	to, err := h.node.subjects.Live(o.To)
	if err != nil {
		return err
	}
	e, err := o.envelope(t.seq, 0, nil)
	if err != nil {
		return err
	}
	body, header, err := t.encodeFor(e)
	if err != nil {
		return err
	}
	h.node.journal.RememberSent(h.Entity, e, body, t.cbor)
	h.unnameHolder(t)
	return h.node.conn.PublishMsg(&nats.Msg{Subject: to, Reply: t.reply, Header: header, Data: body})
}

// forwardCancel forwards a cancel to the receivers of the delegated tasks that it names, after
// those tasks were sent.
func (h *host) forwardCancel(env *envelope.Envelope, what intents.CancelTask, signed bool) (found bool) {
	h.delegating.Lock() // waits for the tasks that are being delegated
	named := h.passed.Named(what, env.From, h.Entity, signed)
	h.delegating.Unlock()
	for _, one := range named {
		if err := h.publishCancel(one.To, intents.CancelTask{ID: one.ID, Reason: what.Reason}); err != nil {
			h.log.Warn("cancel not forwarded", "to", one.To, "id", one.ID, "err", err)
			continue
		}
		found = true
	}
	return found
}
