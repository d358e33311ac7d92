package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/delegated"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/orders"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// delegate ends a task whose handler returned a delegation. It sends the receiver's task
// (live lane), or ends the run with it (durable lane).
func (h *host) delegate(t *Task, o *delegation) {
	if !t.claim() {
		return // cancelled meanwhile, or overdue
	}
	if t.run != nil {
		t.run.delegation = o
		h.durable.end(t, nil, nil)
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

// setDelegated makes c the last checkpoint of a delegated run. The checkpoint holds the
// bytes of the receiver's task, so that the task is the same however often it is queued.
func (r *Run) setDelegated(c *state.Checkpoint, o *delegation) error {
	m := &c.Mesh
	e, err := o.envelope(m.Stream, m.Epoch)
	if err != nil {
		return err
	}
	if _, _, err := r.task.encodeFor(e); err != nil {
		return err
	}
	raw, err := e.AppendJSON(nil)
	if err != nil {
		return err
	}
	run.End(c, run.Ending{Handed: &state.Handed{To: o.To, TaskID: e.ID, Task: raw, Reason: clip.Text(o.Reason, 128)}})
	return nil
}

// queueDelegated submits the task in the last checkpoint of a delegated run to the
// receiver's queue. A task that was submitted before has no second effect.
func (rw *replyWriter) queueDelegated(r *Run) error {
	c := r.cp.Load()
	e, err := envelope.Parse(c.Mesh.Handed.Task)
	if err != nil {
		return fmt.Errorf("the delegated task, in the run's record: %w", err)
	}
	t := r.task
	body, header, err := t.encodeFor(e)
	if err != nil {
		return err
	}
	if !t.cbor {
		body = c.Mesh.Handed.Task
	}
	ctx, cancel := context.WithTimeout(rw.ctx, sched.StoreTimeout)
	defer cancel()
	if _, err := rw.cfg.Queue.Submit(ctx, jetstream.Submission{Entity: e.To, Priority: string(e.Priority), ID: e.ID, Data: body, Header: header}); err != nil {
		return err
	}
	if r.wrote {
		rw.host.node.journal.RememberReceived(rw.host.Entity, e, c.Mesh.Handed.Task, false)
		rw.host.recordDelegated(t, &delegation{task: t, Delegation: Delegation{To: e.To, Reason: c.Mesh.Handed.Reason}, id: e.ID})
	}
	return nil
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

// forwardOrder forwards a command to the receiver of a delegated run. All workers of the entity
// get the command. The worker that ended the run forwards it, or any worker if that one is
// dead.
func (cs *commands) forwardOrder(ctx context.Context, c *state.Checkpoint, o *orders.Order) (out orders.Outcome) {
	out.Found, out.Status = true, string(c.Doc.Status)
	m := &c.Mesh
	if m.Owner != cs.host.id && cs.lane.alive(ctx, m.Owner) {
		out.Silent = true
		return out
	}
	cmd := o.Forwarded(m.Handed.TaskID)
	if cmd == nil {
		return out
	}
	e, err := cs.host.newCommand(m.Handed.To, cmd)
	if err != nil {
		out.Refused = fault.ForPeer(err)
		return out
	}
	reply, err := client.SendCommand(ctx, cs.host.node.Client, m.Handed.To, e)
	if err != nil {
		var problem *envelope.Error
		if errors.As(err, &problem) && problem.FromPeer() {
			out.Refused = problem
		} else if ctx.Err() == nil {
			out.Refused = fault.ForPeer(err)
		} else { // the command is queued; the receiver's next worker applies it
			out.Did("", "noted")
		}
		return out
	}
	var result intents.CommandResult
	if json.Unmarshal(reply.Payload, &result) != nil {
		return out
	}
	out.Answered(result)
	return out
}
