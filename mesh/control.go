package mesh

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
)

// onControl receives a message on aee.ctl.<entity>, to which every worker of the entity
// subscribes. Only the worker that has the task answers.
func (h *host) onControl(msg *nats.Msg) {
	if instance := msg.Header.Get(headerSlots); instance != "" && len(msg.Data) == 0 {
		if l := h.joined(); l != nil && l.slots != nil {
			l.slots.onWanted(instance)
		}
		return
	}
	a := arrival{msg: msg, cbor: isCBOR(msg)}
	if !a.cbor && !h.decodeControl(&a) {
		return
	}
	if !h.control.Go(func() { h.checkControl(a) }) {
		h.counts.busy.Add(1)
	}
}

// decodeControl reads the envelope of a control message. A message without a valid
// envelope is counted but not answered, because every worker would answer it.
func (h *host) decodeControl(a *arrival) bool {
	env, _, err := h.node.decode(a.msg)
	if err == nil {
		err = bounded(env)
	}
	if err != nil {
		h.counts.malformed.Add(1)
		h.node.tel.refused(h, "malformed")
		return false
	}
	a.env = env
	return true
}

// checkControl verifies a control message as strictly as a task. Refusals are counted
// and raise an alert, but are not answered, because every worker would answer.
func (h *host) checkControl(a arrival) {
	if a.env == nil && !h.decodeControl(&a) {
		return
	}
	now := time.Now()
	identity, err := h.node.cfg.Verifier.Verify(a.env, now)
	t := &Task{Envelope: a.env, KeyID: identity.KID, host: h, reply: a.msg.Reply, cbor: a.cbor, queued: now}
	if err == nil && a.env.Type == envelope.TypeTask {
		if problem := t.forMesh(h.node.cfg.Prefix, identity.Signed); problem != nil && !h.ofOneRun(t) {
			err = problem
		}
	}
	if err == nil {
		if problem := h.freshControl(a.env, now); problem != nil {
			err = problem
		}
	}
	if err != nil {
		h.counts.refused.Add(1)
		h.node.tel.refused(h, string(peerError(err).Code))
		h.alert(a.env, peerError(err))
		return
	}
	logReceived(h.log, a.env)
	if answer := h.betweenWorkers(a.env); answer != nil {
		if !h.lookups.Go(func() { answer(t) }) {
			h.counts.busy.Add(1)
		}
		return
	}
	if a.env.Type != envelope.TypeTask || a.env.To != h.Entity || !intents.IsCommand(a.env.Intent) {
		h.counts.unexpected.Add(1)
		return
	}
	if _, problem := h.node.quotas.Admit(a.env, identity.Signed, now); problem != nil {
		h.counts.refused.Add(1)
		h.node.tel.refused(h, string(problem.Code))
		h.fail(t, problem)
		return
	}
	if err := h.validate(a.env.Intent, intents.Task, a.env.Payload); err != nil {
		h.fail(t, err)
		return
	}
	found := a.env.Intent == intents.TaskCancel && h.cancelTasks(a.env, identity.Signed)
	answer := func(payload json.RawMessage) {
		t.span = h.node.tel.startTask(t, a.msg.Header)
		h.succeed(t, payload)
	}
	if h.joined() == nil {
		if found {
			answer(mustJSON(intents.CancelResult{Cancelled: true}))
		}
		return
	}
	// Runs are looked up in a store, which must not hold up a ping.
	if !h.lookups.Go(func() { h.commandRuns(t, identity.Signed, found, answer) }) {
		h.counts.busy.Add(1)
	}
}

// betweenWorkers returns the function that answers a task which one worker of the agent
// sends to another, nil for any other envelope.
func (h *host) betweenWorkers(env *envelope.Envelope) func(*Task) {
	l := h.joined()
	if l == nil || env.Type != envelope.TypeTask || env.To != h.Entity {
		return nil
	}
	switch env.Intent {
	case intents.TaskOffer:
		return l.offered
	case intents.TaskGuard:
		l.guard()
		return l.guardian.asked
	}
	return nil
}

// ofOneRun reports whether a command has the agent itself as from, names no mesh, and
// names exactly one run, by its run id. The platform that transferred a run here sends
// such commands, because it knows this mesh by URL only. They apply only to runs that
// came from a platform (see [order.mayReach]).
func (h *host) ofOneRun(t *Task) bool {
	if h.durable == nil || t.Envelope.From != h.Entity || !intents.IsCommand(t.Envelope.Intent) || t.required(requireMesh) != nil {
		return false
	}
	o, err := newOrder(t.Envelope, "", false)
	return err == nil && o.Run != "" && o.ID == "" && o.Corr == ""
}

// commandRuns applies a command to the runs that this worker owns, else to stored runs
// that no worker owns. A worker answers if it found a run; a worker that found none
// answers only a command that names a durable task, with E_NOT_FOUND.
func (h *host) commandRuns(t *Task, signed, found bool, answer func(json.RawMessage)) {
	o, err := newOrder(t.Envelope, t.KeyID, signed)
	if err != nil {
		h.fail(t, err)
		return
	}
	o.unbound = t.forMesh(h.node.cfg.Prefix, signed) != nil
	ctx, cancel := context.WithTimeout(h.taskScope, lookTimeout)
	defer cancel()
	out := h.durable.applyRunning(o)
	if !out.found && !found && out.refused == nil {
		out = h.durable.applyStored(ctx, o, false)
	}
	switch {
	case out.silent, !o.Durable && !out.found && !found:
	case out.refused != nil:
		h.fail(t, out.refused)
	case !out.found && !found:
		h.fail(t, noSuchRun())
	default:
		out.done = out.done || found
		answer(o.result(out))
	}
}

// freshControl refuses stale control messages, and those that this agent's worker has
// received before. Every worker receives each control message, so with the replay
// windows of the process and of the mesh only one worker could act on it.
func (h *host) freshControl(env *envelope.Envelope, now time.Time) *envelope.Error {
	if err := h.node.timely(env, now); err != nil {
		return err
	}
	if h.controlReplay != nil {
		if err := h.controlReplay.Check(env, now); err != nil {
			h.counts.replayed.Add(1)
			return peerError(err)
		}
	}
	return nil
}

// cancelTasks ends the live tasks that the payload names, if the command comes from their
// sender or from this agent itself. Hops may be cancelled by an operator, too, because
// the worker that would stop them may be dead. A task whose signature was verified
// accepts signed commands only: task ids are public, and an unsigned from proves nothing.
func (h *host) cancelTasks(env *envelope.Envelope, signed bool) (found bool) {
	var what intents.CancelTask
	if json.Unmarshal(env.Payload, &what) != nil {
		return false
	}
	mine := func(t *Task) bool {
		e := t.Envelope
		return t.run == nil && (what.ID != "" && e.ID == what.ID || what.Corr != "" && e.Corr == what.Corr) &&
			(e.From == env.From || env.From == h.Entity || e.ReplyTo != "" && h.operator(env.From)) && (signed || t.KeyID == "")
	}
	reason := "cancelled by " + env.From
	if what.Reason != "" {
		reason += ": " + clip.Text(what.Reason, 128)
	}
	cause := envelope.Errorf(envelope.CodeCancelled, "%s", reason)
	found = h.forwardCancel(env, what, signed)
	for _, t := range h.queue.Remove(mine) {
		h.fail(t, cause)
		found = true
	}
	for _, t := range h.running.matching(mine) {
		h.end(t, cause)
		found = true
	}
	return found
}

// defaultOperators are those of [Durable.Operators], and of agents that have no
// durable lane.
var defaultOperators = []string{"human.>"}

// operator reports whether an entity may command the tasks of other senders.
func (h *host) operator(from string) bool {
	patterns := defaultOperators
	if h.durable != nil {
		patterns = h.durable.cfg.Operators
	}
	return slices.ContainsFunc(patterns, func(p string) bool { return sign.MatchFrom(p, from) })
}
