package mesh

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/stream"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// newStreams returns what the streams (internal/stream) of the lane's runs have in common.
func (l *lane) newStreams() *stream.Lane {
	return &stream.Lane{
		Entity: l.host.Entity, Context: l.ctx, Replies: l.cfg.Replies, Limits: l.host.node.limits, Verifier: l.host.node.cfg.Verifier,
		Temporary: l.records.temporary, Log: l.host.log,
	}
}

// SentText returns the text of the unfinished turn that was already sent to the sender of
// a streamed task, by this owner or an earlier one. A handler that calls it continues
// from there, and does not send that text again.
func (r *Run) SentText() string { return r.stream.SentText() }

// readStream reads from the reply subject what earlier owners have sent since the
// checkpoint c.
func (r *Run) readStream(ctx context.Context, c *state.Checkpoint) error {
	ctx, cancel := context.WithTimeout(ctx, sched.StoreTimeout)
	defer cancel()
	entity, taskID := r.task.originalTask()
	return r.stream.Read(ctx, entity, taskID, c)
}

// streamedRun is a run as its stream sees it.
type streamedRun Run

// RunID is the run's id.
func (s *streamedRun) RunID() string { return s.id.Run }

// Encode makes and signs the stream envelope with the number seq.
func (s *streamedRun) Encode(seq int, payload json.RawMessage) (reply jetstream.Reply, err error) {
	t, l := s.task, s.lane
	numbered, err := wire.WithSeq(payload, seq)
	if err != nil {
		return reply, err
	}
	e := t.answer(envelope.TypeStream, numbered)
	e.From = l.host.Entity
	t.span.Inject(e)
	if s := l.host.Signer; s != nil {
		if err := s.Sign(e); err != nil {
			return reply, err
		}
	}
	c := s.cp.Load()
	if c == nil {
		c = s.claiming
	}
	entity, taskID := t.originalTask()
	chain, digest := t.handed.Proof()
	reply, err = answers.Stored{
		Env: e, CBOR: t.cbor, Entity: entity, TaskID: taskID, MsgID: s.msgID(c, seq), Chain: chain, ChainDigest: digest,
		Seq: seq, Epoch: t.handed.RunEpoch(c.Mesh.Epoch),
	}.Message()
	if err != nil {
		return reply, fmt.Errorf("encode stream envelope: %w", err)
	}
	return reply, nil
}

// msgID returns the Nats-Msg-Id of a stream envelope. All owners of the run compute
// the same one from its record, and no other client can: a stream remembers an id for
// all subjects, so a client that guessed the id could keep this envelope out by
// publishing another reply with it.
func (s *streamedRun) msgID(c *state.Checkpoint, seq int) string {
	m := &c.Mesh
	mark := sha256.New()
	fmt.Fprintf(mark, "%d %s ", m.StoredAt.UnixNano(), s.id.Run)
	mark.Write(m.Task)
	return s.id.Run + "." + strconv.Itoa(seq) + "." + hex.EncodeToString(mark.Sum(nil)[:8])
}
