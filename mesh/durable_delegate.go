package mesh

import (
	"context"
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/delegated"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/orders"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// setDelegated makes c the last checkpoint of a delegated run. The checkpoint holds the
// bytes of the receiver's task, so that the task is the same however often it is queued.
func (r *Run) setDelegated(c *state.Checkpoint, o *delegation) error {
	m := &c.Mesh
	e, err := o.envelope(m.Stream, m.Epoch, m.Steering)
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
	e, err := envelope.ParseStored(c.Mesh.Handed.Task)
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

// forwardOrder forwards a command to the receiver of a delegated run. All workers of the entity
// get the command. The worker that ended the run forwards it, or any worker if that one is
// dead, or the command comes from the queue: alone.
func (cs *commands) forwardOrder(ctx context.Context, c *state.Checkpoint, o *orders.Order, alone bool) (out orders.Outcome) {
	out.Found, out.Status = true, string(c.Doc.Status)
	m := &c.Mesh
	if !alone && m.Owner != cs.host.id && cs.lane.alive(ctx, m.Owner) {
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
	ctx, cancel := context.WithTimeout(ctx, sched.LookTimeout)
	defer cancel()
	reply, queued, err := client.SendCommand(ctx, cs.host.node.Client, m.Handed.To, e)
	if err != nil {
		var problem *envelope.Error
		switch {
		case errors.As(err, &problem) && problem.FromPeer():
			out.Refused = problem
		case ctx.Err() == nil:
			out.Refused = fault.ForPeer(err)
		case queued: // the receiver's next worker applies it
			out.Did("", "noted")
		default: // so that it is sent again
			out.Refused = envelope.Errorf(envelope.CodeUnavailable, "%s has the task, and may not have got the command", m.Handed.To).WithCause(err)
		}
		return out
	}
	var result intents.CommandResult
	if wire.ReadJSON(reply.Payload, &result) != nil {
		return out
	}
	out.Answered(result)
	return out
}

// handedOf returns what says that the task of a stored run was delegated; nil if it was not, or if
// that is not proven.
func (n *Node) handedOf(t *Task, c *state.Checkpoint) *delegated.Handed {
	h, _, _ := t.readHanded()
	switch proven, known := h.Proven(c); {
	case proven:
		return h
	case !known:
		h, _, _ = n.checkHanded(t, c.Mesh.StoredAt)
		return h
	}
	return nil
}
