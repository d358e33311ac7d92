package mesh

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// setEnd makes c the run's last checkpoint: it holds the outcome and the encoded
// reply. So the reply is the same whichever worker stores it, and however often.
func (r *Run) setEnd(c *state.Checkpoint, payload json.RawMessage, problem *envelope.Error) error {
	t := r.task
	if o := r.delegation; o != nil && problem == nil {
		if err := r.setDelegated(c, o); err != nil {
			return r.setEnd(c, nil, fault.ForPeer(err)) // the sender gets the error
		}
		return nil
	}
	var reply *envelope.Envelope
	if problem == nil {
		reply = t.answer(envelope.TypeResult, payload)
	} else {
		reply = t.answer(envelope.TypeError, t.handed.ErrorForCaller(problem).Payload())
	}
	raw, err := r.lane.replies.encodeReply(t, reply)
	if err != nil && problem != nil {
		// The error does not fit a message.
		problem = fault.Bare(problem)
		reply = t.answer(envelope.TypeError, t.handed.ErrorForCaller(problem).Payload())
		raw, err = r.lane.replies.encodeReply(t, reply)
		if err != nil {
			return err
		}
	}
	if err != nil {
		// The result cannot be sent; the sender gets the error instead.
		return r.setEnd(c, nil, fault.ForPeer(err))
	}
	if id := r.cancelledBy.Load(); id != nil {
		c.Mesh.Commands = append(c.Mesh.Commands, *id)
	}
	ending := run.Ending{Reply: raw}
	if problem != nil {
		ending.Error, ending.Dead = r.runError(problem, 0), r.dead
		if ending.Dead == "" && r.exhausted(problem) {
			ending.Dead = "failed: " + problem.Message
			if attempts := c.Mesh.Attempt; attempts > 0 {
				ending.Dead = fmt.Sprintf("failed %d times, at last: %s", attempts+1, problem.Message)
			}
		}
	}
	run.End(c, ending)
	r.answer = reply
	return nil
}

func (r *Run) runError(problem *envelope.Error, left int) *aaif.RunError {
	out := &aaif.RunError{Code: string(problem.Code), Message: problem.Message, OccurredAt: state.Time(r.lane.clock.now())}
	if c := r.cp.Load(); c != nil {
		out.Step = run.ErrorStep(c, problem.Code)
	}
	out.RetriesRemaining = aaif.Int(int64(left))
	return out
}

// replyWriter writes what a lane's runs end with: replies, dead letters, and cancels of the
// calls and inbox entries that are still open.
type replyWriter struct {
	*holdings
}

// encodeReply signs the terminal envelope, encodes it as JSON and checks that it fits
// a message in the encoding of the task.
func (rw *replyWriter) encodeReply(t *Task, e *envelope.Envelope) ([]byte, error) {
	e.From = rw.host.Entity
	t.span.Inject(e)
	if s := rw.host.Signer; s != nil {
		if err := s.Sign(e); err != nil {
			return nil, fault.Output(err)
		}
	}
	room := 0
	if t.handed != nil {
		room = len(t.handed.Header())
	}
	return answers.Encode(e, t.cbor, func(size int) error { return rw.host.node.sendable(size, room) })
}

// publishOutcome stores the dead letter of a failed task, if it is one, and then the
// reply from the run's last checkpoint. Both have fixed ids, so that storing them
// again changes nothing.
func (rw *replyWriter) publishOutcome(r *Run) error {
	c := r.cp.Load()
	m := &c.Mesh
	if r.stored != nil && r.replied && r.hold.Seq != m.Work {
		return nil // a message that claims to resume the run, which has ended: see deliveries.resumed
	}
	rw.withdrawAll(r, c)
	if m.Handed != nil {
		return rw.queueDelegated(r)
	}
	if r.bareReply != nil { // it is stored
		if err := rw.announce(r, *r.bareReply); err != nil {
			return err
		}
		rw.recordEnd(r, r.answer, nil)
		return nil
	}
	stored, err := answers.End(c, r.task.Envelope)
	if err != nil {
		return fmt.Errorf("the reply in the run's record: %w", err)
	}
	reply := stored.Env
	var problem *envelope.Error
	if reply.Type == envelope.TypeError {
		problem = envelope.ErrorOf(reply)
	}
	if m.Dead != "" {
		failed := *r.hold.Delivery // the letter names the run's own message, also if another message of the task finds that the run has ended
		failed.Seq, failed.Stored = m.Work, m.StoredAt
		if r.hold.Seq != m.Work {
			failed.Data = nil // the other message may have other headers, and its hop other requires
		}
		if failed.Data, failed.Header, err = client.Letter(c, failed.Data, failed.Header); err != nil {
			return err
		}
		if err := rw.storeDead(&hold{Delivery: &failed}, r.id.Run, r.task.Envelope, problem, m.Dead, max(m.Attempt+1, m.Claims-1)); err != nil {
			return err
		}
		r.observe(PointDead)
	}
	entity, taskID := r.task.originalTask()
	stored.Entity, stored.TaskID = entity, taskID
	stored.Epoch = r.task.handed.RunEpoch(m.Epoch)
	stored.Chain, stored.ChainDigest = r.task.handed.Proof()
	err = rw.send(r, stored)
	if fault.Unsendable(err) { // an earlier release has written it, or the server's max_payload was larger
		rw.host.log.Warn("reply cannot be sent, error sent in its place", "run", r.id.Run, "id", taskID, "err", err)
		if stored, err = stored.Instead(err, rw.host.Signer); err == nil {
			err = rw.send(r, stored)
		}
	}
	if err != nil {
		return err
	}
	if r.wrote {
		rw.recordEnd(r, reply, problem)
	}
	return nil
}

// send announces and stores the reply of a run that has ended.
func (rw *replyWriter) send(r *Run, stored answers.Stored) error {
	msg, err := stored.Message()
	if err != nil {
		return err
	}
	switch {
	case rw.repliesBeside(r):
		// The record has the reply already, so the sender need not wait until it is stored beside it.
		if err := rw.announce(r, msg); err != nil {
			return err
		}
		r.observe(PointAnnounced)
		return rw.storeReply(r, msg)
	case !r.wrote: // an earlier owner may have stored it
		last, err := rw.cfg.Replies.Last(rw.ctx, msg.Entity, msg.TaskID)
		if err == nil && last.Header.Get(nats.MsgIdHdr) == msg.MsgID {
			return nil
		}
		if err != nil && !errors.Is(err, jetstream.ErrNotFound) {
			return err
		}
	}
	return rw.cfg.Replies.Publish(rw.ctx, msg)
}

// announce sends a reply to the senders that wait for it. One that is stored already and that no
// message can carry is left to their next look at the store.
func (rw *replyWriter) announce(r *Run, msg jetstream.Reply) error {
	err := rw.cfg.Replies.Announce(msg)
	if r.replied && fault.Unsendable(err) {
		rw.host.log.Debug("stored reply not announced", "run", r.id.Run, "err", err)
		return nil
	}
	return err
}

// recordEnd records statistics, telemetry, log and events of a run that this worker
// has ended.
func (rw *replyWriter) recordEnd(r *Run, reply *envelope.Envelope, problem *envelope.Error) {
	h, t := rw.host, r.task
	h.node.journal.RememberReceived(h.Entity, reply, r.cp.Load().Mesh.Reply, false)
	h.recordEnd(t, problem)
}
