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

// onControl takes a message from aee.ctl.<entity>, which every replica hears.
// Only the replica that has the task answers.
func (h *host) onControl(msg *nats.Msg) {
	if instance := msg.Header.Get(headerSlots); instance != "" && len(msg.Data) == 0 {
		if l := h.joined(); l != nil && l.slots != nil {
			l.slots.hear(instance)
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

// decodeControl reads the envelope of a control message. One that has none is counted,
// and not answered: every replica would.
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

// checkControl verifies a control message as strictly as a task. Refusals are
// counted and raise an alert, but are not answered: every replica would.
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
		h.node.tel.refused(h, string(border(err).Code))
		h.alert(a.env, border(err))
		return
	}
	consumed(h.log, a.env)
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

// betweenWorkers returns what answers a task that workers of the agent send one another, nil
// for any other envelope.
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

// ofOneRun reports whether a command names no mesh, and by the agent's own word one
// run and nothing else. So does what another platform says of a run that it has handed
// over: it knows this mesh by its URL only. An order of that kind reaches no other run
// (see [order.mayReach]).
func (h *host) ofOneRun(t *Task) bool {
	if h.durable == nil || t.Envelope.From != h.Entity || !intents.IsCommand(t.Envelope.Intent) || t.required(requireMesh) != nil {
		return false
	}
	o, err := newOrder(t.Envelope, "", false)
	return err == nil && o.Run != "" && o.ID == "" && o.Corr == ""
}

// commandRuns applies a command to durable tasks: to those that this worker
// has, or to those that nobody has. Only who had something to do answers.
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

// freshControl refuses what is stale, and what this instance has heard before.
// Every replica hears a control message, so the windows of the process and of
// the mesh would let only one of them act on it.
func (h *host) freshControl(env *envelope.Envelope, now time.Time) *envelope.Error {
	if err := h.node.timely(env, now); err != nil {
		return err
	}
	if h.heard != nil {
		if err := h.heard.Check(env, now); err != nil {
			h.counts.replayed.Add(1)
			return border(err)
		}
	}
	return nil
}

// cancelTasks ends the tasks that the payload names, if their own sender, or
// this agent itself, asks for it; hops of a tree also if an operator does, because
// the worker that would stop them may be gone. What came signed ends by a signed word only:
// ids are told on the bus, and an unsigned from is no more than a claim.
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
	found = h.cancelPassed(env, what, signed)
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

// operator reports whether somebody may command the tasks of others.
func (h *host) operator(from string) bool {
	patterns := defaultOperators
	if h.durable != nil {
		patterns = h.durable.cfg.Operators
	}
	return slices.ContainsFunc(patterns, func(p string) bool { return sign.MatchFrom(p, from) })
}
