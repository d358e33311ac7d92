package mesh

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// A run's reply is stored next to its record, under the same compare-and-swap. So a run
// has one reply, and no write to the run follows it. A run that has a document ends with a
// document that holds the reply, and the reply is stored after that. A run without a
// document, because its task took one short step, ends when its reply is stored.

// repliesBeside reports whether the reply of an ended run is stored next to its record.
// The reply to a task that was delegated to this agent is not: it is stored on the reply
// subject of the original task.
func (rw *replyWriter) repliesBeside(r *Run) bool {
	return r.replied || r.task.handed == nil && rw.records.states.Replies(rw.ctx)
}

// storeReply stores the reply of a run that has a document, unless that was done before.
func (rw *replyWriter) storeReply(r *Run, msg jetstream.Reply) error {
	if r.replied {
		return nil
	}
	c := r.cp.Load()
	note := jetstream.Note{Status: c.Doc.Status, Work: c.Mesh.Work}
	_, rec, err := rw.records.swap(rw.ctx, r.id, func() (uint64, error) {
		return rw.records.states.Reply(rw.ctx, r.id, r.rev, msg, note, nil)
	}, func(state.Record) (uint64, error) { return 0, nil })
	if errors.Is(err, state.ErrChanged) && rec != nil {
		return nil // another worker has stored it, or an operator has retried the dead letter
	}
	return err
}

// mayEndBare reports whether the run may end without a document: none was written, and a
// document would hold nothing that is kept but the task. r.mu is held.
func (r *Run) mayEndBare() bool {
	l, c := r.lane, r.cp.Load()
	return r.rev == 0 && !l.cfg.KeepTasks && l.records.codec.Seal == nil && !r.task.cbor && r.delegation == nil && len(r.staged) == 0 &&
		r.task.handed == nil && run.Bare(c) && l.records.states.Replies(l.ctx)
}

// endBare ends the run by storing its reply without a document, and reports whether it
// did. If another writer wrote the record first and this worker still owns the run, the
// run has a document now: endBare returns false, and the run ends with a document. r.mu is
// held.
func (r *Run) endBare(payload json.RawMessage) (bool, error) {
	l, ctx := r.lane, r.lane.ctx
	c := r.cp.Load().Clone()
	r.calls.KeepSent(c)
	r.calls.RemoveEnded(c)
	r.task.tree.KeepTurns(c)
	if !run.Bare(c) {
		return false, nil
	}
	if err := r.setEnd(c, payload, nil); err != nil {
		return false, err
	}
	if c.Doc.Error != nil {
		return false, nil // the result cannot be sent: a document with the error is written
	}
	msg, err := answers.Of(r.answer, c, r.task.Envelope).Message()
	if err != nil {
		return false, err
	}
	m := &c.Mesh
	end := &state.End{
		TaskID: m.TaskID, Agent: c.Doc.AgentID, Epoch: m.Epoch, Digest: msg.Header.Get(wire.HeaderTaskDigest), Under: r.task.Envelope.ReplyTo,
		StoredAt: m.StoredAt, StartedAt: m.StartedAt,
	}
	note := jetstream.Note{Status: c.Doc.Status, Work: m.Work}
	rev, rec, err := l.records.swap(ctx, r.id, func() (uint64, error) {
		l.share.Wrote(len(msg.Data))
		return l.records.states.Reply(ctx, r.id, 0, msg, note, end)
	}, func(now state.Record) (uint64, error) {
		if now.End != nil && bytes.Equal(now.Data, msg.Data) {
			return now.Revision, nil
		}
		return 0, nil
	})
	switch {
	case err == nil:
		r.keep(c, rev)
		r.replied, r.bareReply = true, &msg
		return true, nil
	case errors.Is(err, state.ErrChanged):
		return false, r.resolveConflict(ctx, rec)
	}
	return false, err
}
