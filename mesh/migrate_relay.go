package mesh

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
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// relayGrace is how long after a task's deadline the source waits for the target's own
// E_TIMEOUT.
const relayGrace = 15 * time.Second

// relay brings the replies of a run on another platform to the sender of its task:
// each with the number and id that it would have had here. The message stays leased
// until the terminal reply is stored. If this worker dies, the next one goes on after
// the last stored number.
func (tr *transfers) relay(ctx context.Context, r *Run) {
	m := r.cp.Load().Mesh.Migration
	if d := r.deadline; !d.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, tr.clock.local(d).Add(relayGrace), errOverdue)
		defer cancel()
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		began := time.Now()
		last, err := tr.relayOnce(ctx, m, r)
		switch {
		case last != nil:
			tr.relayed(r, last)
			return
		case errors.Is(context.Cause(ctx), errOverdue):
			tr.endHere(r, r.overdue())
			return
		case err != nil && fault.ForPeer(err).Code == envelope.CodeTooLarge:
			tr.endHere(r, fault.ForPeer(err)) // a retry would meet the same error
			return
		case ctx.Err() == nil:
			tr.host.log.Warn("no replies from the platform that runs the run", "run", r.id.Run, "to", m.To, "err", err)
		}
		if time.Since(began) > time.Minute {
			wait = 50 * time.Millisecond
		}
		if sleep(ctx, wait) != nil && !errors.Is(context.Cause(ctx), errOverdue) {
			tr.nakMigrated(r)
			return
		}
	}
}

// relayOnce relays over one connection, and returns the terminal reply, in its form
// for this mesh, once it has come.
func (tr *transfers) relayOnce(ctx context.Context, m *state.Migration, r *Run) (last *relayedReply, err error) {
	p, err := tr.remote(m.To)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	after, err := tr.relayedUpTo(ctx, r)
	if err != nil {
		return nil, err
	}
	request, err := p.request(m, handoff.ActionReplies)
	if err != nil {
		return nil, err
	}
	err = p.Replies(ctx, m.ID, request, after, func(reply handoff.Reply) error {
		if reply.Seq <= after {
			return nil
		}
		env, err := tr.fromTarget(r, reply)
		if err != nil {
			return fmt.Errorf("reply %d of the target: %w", reply.Seq, err)
		}
		if reply.Last {
			last = &relayedReply{env, int(reply.Seq)}
			return nil
		}
		msg, err := answers.Stored{
			Env: env, CBOR: r.task.cbor, Entity: tr.host.Entity, TaskID: r.task.Envelope.ID,
			MsgID: r.id.Run + "." + strconv.FormatUint(reply.Seq, 10), Seq: int(reply.Seq), Epoch: strconv.FormatUint(r.Epoch(), 10),
		}.Message()
		if err != nil {
			return err
		}
		if err := tr.cfg.Replies.Publish(ctx, msg); err != nil {
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

// relayedUpTo returns the number of the last reply that is stored here.
func (tr *transfers) relayedUpTo(ctx context.Context, r *Run) (uint64, error) {
	after := uint64(r.cp.Load().Mesh.Stream)
	msg, err := tr.cfg.Replies.Last(ctx, tr.host.Entity, r.task.Envelope.ID)
	switch {
	case errors.Is(err, jetstream.ErrNotFound):
		return after, nil
	case err != nil:
		return 0, err
	}
	if n, err := strconv.ParseUint(msg.Header.Get(jetstream.HeaderSeq), 10, 64); err == nil {
		after = max(after, n)
	}
	return after, nil
}

// maxReplies bounds the number of a reply from another platform.
const maxReplies = math.MaxInt32

// fromTarget reads a reply of the target and converts it to the reply of this mesh.
func (tr *transfers) fromTarget(r *Run, reply handoff.Reply) (*envelope.Envelope, error) {
	n, task := tr.host.node, r.task.Envelope
	env, _, err := wire.Decode(&nats.Msg{Data: reply.Data, Header: nats.Header(reply.Header)}, n.limits)
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
		var members map[string]json.RawMessage // by exact names, unlike a struct
		if err := json.Unmarshal(env.Payload, &members); err != nil {
			return nil, err
		}
		if string(members["seq"]) != strconv.FormatUint(reply.Seq, 10) {
			return nil, fmt.Errorf("its payload has seq %s", clip.Text(string(members["seq"]), 128))
		}
	}
	if env, err = n.answers.FromPlatform(tr.host.Entity, task, env, tr.host.Signer, tr.clock.now()); err != nil {
		return nil, err
	}
	raw, err := env.AppendJSON(nil)
	if err == nil {
		err = n.sendable(raw, 0)
	}
	return env, err
}

// relayed ends the run here with the target's terminal reply.
func (tr *transfers) relayed(r *Run, last *relayedReply) {
	raw, err := last.env.AppendJSON(nil)
	if err != nil {
		tr.nakFailed(r, err)
		return
	}
	tr.endRelay(r, func(c *state.Checkpoint) error {
		ending := run.Ending{Reply: raw, Target: clip.Text(c.Mesh.Migration.Target, 128), Stream: last.seq - 1}
		if last.env.Type == envelope.TypeError {
			ending.Error = r.runError(envelope.ErrorOf(last.env), 0)
		}
		run.End(c, ending)
		return nil
	})
}

// endHere ends the run here although its target has not ended it: its deadline has
// passed, or the target's reply cannot be stored here.
func (tr *transfers) endHere(r *Run, problem *envelope.Error) {
	tr.endRelay(r, func(c *state.Checkpoint) error { return r.setEnd(c, nil, problem) })
}

// endRelay writes the end of a run that is on another platform.
func (tr *transfers) endRelay(r *Run, change func(*state.Checkpoint) error) {
	r.mu.Lock()
	if r.end != nil {
		r.mu.Unlock()
		return
	}
	r.observe(PointBeforeTerminal)
	r.begun = time.Now()
	tr.afterTerminal(r, r.write(tr.ctx, change))
}

// afterTerminal publishes the outcome of a terminal record. r.mu is held on entry and
// released at the end.
func (tr *transfers) afterTerminal(r *Run, err error) {
	if err == nil {
		r.wrote = true
		r.observe(PointAfterTerminal)
	}
	lost := errors.Is(err, ErrLost)
	r.stop(ErrLost)
	r.mu.Unlock()
	if lost {
		return
	}
	r.task.claim()
	tr.lane.applyVerdict(r, run.Ended, err)
}
