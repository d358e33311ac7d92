package mesh

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// reject takes a message off the queue that can never be worked on: it cannot be
// decoded, its signature is missing or wrong, or its id belongs to another task. The
// message becomes a dead letter. Its sender is answered, unless a run has that id:
// then the reply subject belongs to that run.
func (ds *deliveries) reject(hold *hold, env *envelope.Envelope, cbor bool, problem *envelope.Error) {
	wire.LogRefused(ds.host.log, env, problem.Code)
	ds.toDead(hold, env, cbor, problem)
}

// rejectMalformed is reject of a message without a valid envelope, for the error of its decoder.
func (ds *deliveries) rejectMalformed(hold *hold, cbor bool, err error) {
	problem := fault.ForPeer(err)
	wire.LogRefused(ds.host.log, wire.Readable(err), problem.Code, slog.String("subject", hold.Subject), slog.Any("err", err))
	ds.toDead(hold, wire.SalvageFrom(err, ds.host.Entity), cbor, problem)
}

func (ds *deliveries) toDead(hold *hold, env *envelope.Envelope, cbor bool, problem *envelope.Error) {
	h := ds.host
	h.counts.refused.Add(1)
	h.node.tel.Refused(h.Entity, string(problem.Code))
	if err := ds.replies.storeDead(hold, "", env, problem, problem.Message, 0); err != nil {
		h.log.Warn("dead letter not stored", "seq", hold.Seq, "err", err)
		ds.nak(hold, time.Second)
		return
	}
	if err := ds.replies.replyRefused(hold, env, cbor, problem); err != nil {
		h.log.Warn("reply not stored", "id", env.ID, "err", err)
		ds.nak(hold, time.Second)
		return
	}
	ds.ack(hold)
}

// storeDead stores a dead letter and alerts the operators. run is the task's run id,
// "" where it has none.
func (rw *replyWriter) storeDead(hold *hold, run string, env *envelope.Envelope, problem *envelope.Error, cause string, attempts int) error {
	h := rw.host
	ctx, cancel := context.WithTimeout(rw.ctx, sched.StoreTimeout)
	defer cancel()
	id := env.ID
	if id == wire.UnknownID {
		id = ""
	}
	_, err := rw.cfg.Dead.Put(ctx, jetstream.DeadLetter{
		Entity: h.Entity, TaskID: id, Run: run, Subject: hold.Subject, Header: hold.Header, Data: hold.Data,
		Code: string(problem.Code), Cause: cause, Attempts: attempts, Worker: h.id, Work: hold.Seq, Stored: hold.Stored,
	})
	if err != nil {
		return err
	}
	rw.tel.Dead(h.Entity, problem.Code)
	h.events.AlertDead(env, problem, cause, attempts)
	return nil
}

// replyRefused stores the reply to a message that has no run, unless it is stored: the message may
// come again, because its acknowledgement was lost. The reply's id follows from the message.
func (rw *replyWriter) replyRefused(hold *hold, env *envelope.Envelope, cbor bool, problem *envelope.Error) error {
	h := rw.host
	if env.ID == wire.UnknownID {
		return nil
	}
	ctx, cancel := context.WithTimeout(rw.ctx, sched.StoreTimeout)
	defer cancel()
	if _, err := rw.cfg.States.Get(ctx, state.ID{Entity: h.Entity, Run: state.RunID(h.Entity, env.ID)}); !errors.Is(err, state.ErrNotFound) {
		return err // nil: a run has the id, and its own reply
	}
	t := &Task{Envelope: env, host: h, cbor: cbor}
	t.handed, _, _ = h.node.checkHanded(t, hold.Stored)
	problem = t.handed.ErrorForCaller(problem)
	reply := t.answer(envelope.TypeError, problem.Payload())
	raw, err := rw.encodeReply(t, reply)
	if err != nil {
		return nil // no valid envelope can answer it
	}
	entity, taskID := t.originalTask()
	if _, err := h.node.subjects.Reply(entity, taskID); err != nil {
		return nil // no subject is for the answer
	}
	chain, digest := t.handed.Proof()
	msg, err := answers.Stored{
		Env: reply, Raw: raw, CBOR: cbor, Entity: entity, TaskID: taskID, MsgID: answers.RefusedID(hold.Seq),
		Task: env, Chain: chain, ChainDigest: digest, // see replyReader.another
	}.Message()
	if err != nil {
		return nil
	}
	return rw.cfg.Replies.PublishUnless(ctx, msg, func(last jetstream.Message) bool {
		_, err := h.node.answers.OfMessage(entity, taskID, last)
		return err == nil && answers.Refuses(last.Header, hold.Seq)
	})
}
