package mesh

import (
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/orders"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// controls answers the control messages of an agent: commands, and what its workers ask each
// other.
type controls struct{ host *host }

// onControl receives a message on aee.ctl.<entity>, to which every worker of the entity
// subscribes. Only the worker that has the task answers.
func (cm *controls) onControl(msg *nats.Msg) {
	if instance := msg.Header.Get(headerSlots); instance != "" && len(msg.Data) == 0 {
		if l := cm.host.joined(); l != nil {
			l.slotsWanted(instance)
		}
		return
	}
	a := arrival{msg: msg, cbor: wire.IsCBOR(msg)}
	if !a.cbor && !cm.decodeControl(&a) {
		return
	}
	if !cm.host.control.Go(func() { cm.checkControl(a) }) {
		cm.host.counts.busy.Add(1)
	}
}

// decodeControl reads the envelope of a control message. A message without a valid
// envelope is counted but not answered, because every worker would answer it.
func (cm *controls) decodeControl(a *arrival) bool {
	env, _, err := wire.Receive(a.msg, cm.host.node.limits)
	if err != nil {
		cm.host.counts.malformed.Add(1)
		cm.host.node.tel.Refused(cm.host.Entity, "malformed")
		wire.LogRefused(cm.host.log, wire.Readable(err), fault.ForPeer(err).Code, slog.String("subject", a.msg.Subject), slog.Any("err", err))
		return false
	}
	a.env = env
	return true
}

// checkControl verifies a control message as strictly as a task. Refusals are counted
// and raise an alert, but are not answered, because every worker would answer.
func (cm *controls) checkControl(a arrival) {
	if a.env == nil && !cm.decodeControl(&a) {
		return
	}
	now := time.Now()
	identity, err := cm.host.node.cfg.Verifier.Verify(a.env, now)
	t := &Task{Envelope: a.env, KeyID: identity.KID, host: cm.host, reply: a.msg.Reply, cbor: a.cbor, queued: now}
	if err == nil && a.env.Type == envelope.TypeTask {
		if problem := t.forMesh(cm.host.node.cfg.Prefix, identity.Signed); problem != nil && !cm.ofOneRun(t) {
			err = problem
		}
	}
	if err == nil {
		if problem := cm.freshControl(a.env, now); problem != nil {
			err = problem
		}
	}
	if err != nil {
		cm.host.counts.refused.Add(1)
		problem := fault.ForPeer(err)
		cm.host.node.tel.Refused(cm.host.Entity, string(problem.Code))
		wire.LogRefused(cm.host.log, a.env, problem.Code)
		cm.host.events.Alert(a.env, problem)
		return
	}
	wire.LogReceived(cm.host.log, a.env)
	if answer := cm.betweenWorkers(a.env); answer != nil {
		if !cm.host.lookups.Go(func() { answer(t) }) {
			cm.host.counts.busy.Add(1)
		}
		return
	}
	if a.env.Type != envelope.TypeTask || a.env.To != cm.host.Entity || !intents.IsCommand(a.env.Intent) {
		cm.host.counts.unexpected.Add(1)
		return
	}
	if _, problem := cm.host.node.quotas.Admit(a.env, identity.Signed, now); problem != nil {
		cm.host.counts.refused.Add(1)
		cm.host.node.tel.Refused(cm.host.Entity, string(problem.Code))
		cm.host.fail(t, problem)
		return
	}
	if err := cm.host.payloads.Validate(a.env.Intent, intents.Task, a.env.Payload); err != nil {
		cm.host.fail(t, err)
		return
	}
	found := a.env.Intent == intents.TaskCancel && cm.cancelTasks(a.env, identity.Signed)
	answer := func(payload json.RawMessage) {
		t.span = t.startSpan(a.msg.Header)
		cm.host.succeed(t, payload)
	}
	l := cm.host.joined()
	if l == nil {
		if found {
			answer(wire.MustJSON(intents.CancelResult{Cancelled: true}))
		}
		return
	}
	// Runs are looked up in a store, which must not hold up a ping.
	if look := l.command(t, identity.Signed, found, answer); look != nil && !cm.host.lookups.Go(look) {
		cm.host.counts.busy.Add(1)
	}
}

// betweenWorkers returns the function that answers a task which one worker of the agent
// sends to another, nil for any other envelope.
func (cm *controls) betweenWorkers(env *envelope.Envelope) func(*Task) {
	l := cm.host.joined()
	if l == nil || env.Type != envelope.TypeTask || env.To != cm.host.Entity {
		return nil
	}
	return l.betweenWorkers(env.Intent)
}

// ofOneRun reports whether a command has the agent itself as from, names no mesh, and
// names exactly one run, by its run id. The platform that transferred a run here sends
// such commands, because it knows this mesh by URL only. They apply only to runs that
// came from a platform (see [orders.Order.MayReach]).
func (cm *controls) ofOneRun(t *Task) bool {
	if cm.host.durable == nil || t.Envelope.From != cm.host.Entity || !intents.IsCommand(t.Envelope.Intent) || t.required(requires.Mesh) != nil {
		return false
	}
	o, err := orders.New(t.Envelope, "", false)
	return err == nil && o.NamesRunAlone()
}

// freshControl refuses stale control messages, and those that this agent's worker has
// received before. Every worker receives each control message, so with the replay
// windows of the process and of the mesh only one worker could act on it.
func (cm *controls) freshControl(env *envelope.Envelope, now time.Time) *envelope.Error {
	if err := cm.host.node.checkAge(env, now); err != nil {
		return err
	}
	if cm.host.controlReplay != nil {
		if err := cm.host.controlReplay.Check(env, now); err != nil {
			cm.host.counts.replayed.Add(1)
			return fault.ForPeer(err)
		}
	}
	return nil
}

// cancelTasks ends the live tasks that the payload names, if the sender may cancel them. It reports
// whether it has ended any. A task that the cancel has overtaken is ended when it is accepted
// (see cancelledEarly).
func (cm *controls) cancelTasks(env *envelope.Envelope, signed bool) (found bool) {
	var what intents.CancelTask
	if wire.ReadJSON(env.Payload, &what) != nil {
		return false
	}
	mine := func(t *Task) bool {
		e := t.Envelope
		return (what.ID != "" && e.ID == what.ID || what.Corr != "" && e.Corr == what.Corr) && cm.host.mayCancel(t, env.From, what.From, signed)
	}
	reason := "cancelled by " + env.From
	if what.Reason != "" {
		reason += ": " + clip.Text(what.Reason, 128)
	}
	cause := envelope.Errorf(envelope.CodeCancelled, "%s", reason)
	cm.host.early.Keep(orders.Cancel{ID: what.ID, From: env.From, Caller: what.From, Signed: signed, Cause: cause}, time.Now())
	for _, t := range cm.host.queue.Remove(mine) {
		found = cm.host.fail(t, cause) || found
	}
	for _, t := range cm.host.running.Matching(mine) {
		found = cm.host.end(t, cause) || found
	}
	return cm.host.forwardCancel(env, what, signed) || found
}

// mayCancel reports whether an entity may cancel a live task: its sender may, and this agent itself. An
// operator may cancel hops, too, because the worker that would stop them may be dead. A task whose
// signature was verified accepts signed commands only: task ids are public, and an unsigned
// from proves nothing. caller is as in mayCommand.
func (h *host) mayCancel(t *Task, from, caller string, signed bool) bool {
	e := t.Envelope
	return t.run == nil && (caller == "" || caller == e.From) && (e.From == from || from == h.Entity || e.ReplyTo != "" && h.operator(from)) && (signed || t.KeyID == "")
}

// cancelledEarly reports whether the cancel of a task has overtaken it, and ends the task then. A task
// for the queue is tracked already, so that a cancel that comes now finds it.
func (h *host) cancelledEarly(t *Task) bool {
	for _, c := range h.early.Of(t.Envelope.ID, t.queued) {
		if h.mayCancel(t, c.From, c.Caller, c.Signed) {
			h.end(t, c.Cause)
			return true
		}
	}
	return false
}

// operator reports whether an entity may command the tasks of other senders.
func (h *host) operator(from string) bool {
	patterns := defaultOperators
	if h.durable != nil {
		patterns = h.node.cfg.Durable.Operators
	}
	return slices.ContainsFunc(patterns, func(p string) bool { return sign.MatchFrom(p, from) })
}
