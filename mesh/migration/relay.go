package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// relayGrace is how long after a task's deadline the source waits for the target's own
// E_TIMEOUT.
const relayGrace = 15 * time.Second

// errOverdue ends the wait for the target of a task whose deadline has passed.
var errOverdue = fmt.Errorf("the task's deadline has passed: %w", context.DeadlineExceeded)

// relay brings the replies of a run on another platform to the sender of its task:
// each with the number and id that it would have had here. The message stays leased
// until the terminal reply is stored. If this worker dies, the next one goes on after
// the last stored number. Each one first cancels the run's open calls: the target makes them
// again, and the worker before may have died before it cancelled them.
func (m *Mover) relay(ctx context.Context, r *Run) {
	r.StopCalls()
	about := r.migration()
	ctx, cancel := m.untilOverdue(ctx, r)
	defer cancel()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		began := time.Now()
		last, err := m.relayOnce(ctx, about, r)
		switch {
		case last != nil:
			r.End(last.env, last.seq-1)
			return
		case errors.Is(context.Cause(ctx), errOverdue):
			r.Fail(nil)
			return
		case err != nil && (fault.ForPeer(err).Code == envelope.CodeTooLarge || fault.IsCode(err, envelope.CodeOutputSchema)):
			r.Fail(fault.ForPeer(err)) // a retry would meet the same error
			return
		case ctx.Err() == nil:
			m.cfg.Log.Warn("no replies from the platform that runs the run", "run", r.id(), "to", about.To, "err", err)
		}
		if time.Since(began) > time.Minute {
			wait = 50 * time.Millisecond
		}
		if !pause.For(ctx, wait) && !errors.Is(context.Cause(ctx), errOverdue) {
			r.Requeue(nil)
			return
		}
	}
}

// untilOverdue returns a context that ends with errOverdue when the target's time is over. The
// source then ends the run with E_TIMEOUT. The target may still work, but its replies reach the
// sender only through the source, so there is one answer.
func (m *Mover) untilOverdue(ctx context.Context, r *Run) (context.Context, context.CancelFunc) {
	if r.Deadline.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, time.Now().Add(r.Deadline.Sub(m.host.Now())+relayGrace), errOverdue)
}

// relayOnce relays over one connection, and returns the terminal reply, in its form
// for this mesh, once it has come.
func (m *Mover) relayOnce(ctx context.Context, about *state.Migration, r *Run) (last *relayedReply, err error) {
	p, err := m.remote(about.To)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	after, err := m.relayedUpTo(ctx, r)
	if err != nil {
		return nil, err
	}
	request, err := p.request(about, handoff.ActionReplies)
	if err != nil {
		return nil, err
	}
	c, _ := r.Checkpoint()
	err = p.Replies(ctx, about.ID, request, after, func(reply handoff.Reply) error {
		if reply.Seq <= after && !reply.Last {
			return nil
		}
		env, err := m.fromTarget(r, reply)
		if err != nil {
			return fmt.Errorf("reply %d of the target: %w", reply.Seq, err)
		}
		if reply.Last {
			last = &relayedReply{env, int(reply.Seq)}
			return nil
		}
		msg, err := answers.Stored{
			Env: env, CBOR: c.Mesh.CBOR, Entity: m.cfg.Entity, TaskID: r.Task.ID,
			MsgID: c.Doc.RunID + "." + strconv.FormatUint(reply.Seq, 10), Seq: int(reply.Seq), Epoch: strconv.FormatUint(c.Mesh.Epoch, 10),
		}.Message()
		if err != nil {
			return err
		}
		if err := m.cfg.Replies.Publish(ctx, msg); err != nil {
			return err
		}
		after = reply.Seq
		return nil
	})
	return last, err
}

// relayedReply is a terminal reply that came from another platform, and its number.
type relayedReply struct {
	env *envelope.Envelope
	seq int
}

// relayedUpTo returns the number of the last stream envelope that is stored here. A stored
// terminal reply is from an earlier attempt: the retry of a dead letter continues its numbers.
func (m *Mover) relayedUpTo(ctx context.Context, r *Run) (uint64, error) {
	c, _ := r.Checkpoint()
	after := uint64(c.Mesh.Stream)
	msg, err := m.cfg.Replies.Last(ctx, m.cfg.Entity, r.Task.ID)
	switch {
	case errors.Is(err, jetstream.ErrNotFound):
		return after, nil
	case err != nil:
		return 0, err
	}
	env, _, err := wire.Decode(&nats.Msg{Data: msg.Data, Header: msg.Header}, m.cfg.Answers.Limits)
	if err != nil || env.Type != envelope.TypeStream {
		return after, nil
	}
	if n, err := strconv.ParseUint(msg.Header.Get(jetstream.HeaderSeq), 10, 64); err == nil {
		after = max(after, n)
	}
	return after, nil
}

// maxReplies bounds the number of a reply from another platform.
const maxReplies = math.MaxInt32

// fromTarget reads a reply of the target and converts it to the reply of this mesh.
func (m *Mover) fromTarget(r *Run, reply handoff.Reply) (*envelope.Envelope, error) {
	env, _, err := wire.Decode(&nats.Msg{Data: reply.Data, Header: nats.Header(reply.Header)}, m.cfg.Answers.Limits)
	if err != nil {
		return nil, err
	}
	switch {
	case reply.Seq > maxReplies:
		return nil, fmt.Errorf("its number exceeds %d", maxReplies)
	case env.Type.Terminal() != reply.Last:
		return nil, fmt.Errorf("it is of type %s, and last is %t", env.Type, reply.Last)
	}
	if !reply.Last {
		var members map[string]json.RawMessage // a struct would also match names of another case
		if err := json.Unmarshal(env.Payload, &members); err != nil {
			return nil, err
		}
		if string(members["seq"]) != strconv.FormatUint(reply.Seq, 10) {
			return nil, fmt.Errorf("its payload has seq %s", clip.Text(string(members["seq"]), 128))
		}
	}
	if env, err = m.cfg.Answers.FromPlatform(m.cfg.Entity, r.Task, env, m.cfg.Signer, m.host.Now()); err != nil {
		return nil, err
	}
	c, _ := r.Checkpoint()
	_, err = answers.Encode(env, c.Mesh.CBOR, m.host.Sendable)
	return env, err
}
