package mesh

import (
	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/delegated"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
)

// delegate ends a task whose handler returned a delegation. It sends the receiver's task
// (live lane), or ends the run with it (durable lane).
func (h *host) delegate(t *Task, o *delegation) {
	if !t.claim() {
		return // cancelled meanwhile, or overdue
	}
	if t.run != nil {
		t.run.finish(nil, o)
		return
	}
	if err := h.sendDelegated(t, o); err != nil {
		h.answer(t, fault.ForPeer(err))
		h.recordEnd(t, fault.ForPeer(err))
		return
	}
	h.passed.Add(t.Envelope, t.KeyID, delegated.At{To: o.To, ID: o.id}, t.left())
	h.recordDelegated(t, o)
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
	e, err := o.envelope(t.seq, 0)
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

// forwardCancel forwards a cancel to the receivers of the delegated tasks that it names.
func (h *host) forwardCancel(env *envelope.Envelope, what intents.CancelTask, signed bool) (found bool) {
	for _, one := range h.passed.Named(what, env.From, h.Entity, signed) {
		if err := h.publishCancel(one.To, intents.CancelTask{ID: one.ID, Reason: what.Reason}); err != nil {
			h.log.Warn("cancel not forwarded", "to", one.To, "id", one.ID, "err", err)
			continue
		}
		found = true
	}
	return found
}
