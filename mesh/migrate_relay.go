package mesh

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
)

// relayGrace is how long after a task's deadline its source waits for the
// target's word on that.
const relayGrace = 15 * time.Second

// relay brings the replies of a run that is elsewhere to whoever has sent its
// task here: each under the number and id that it would have had here. The
// message stays leased until the terminal reply is stored. A relay that dies is
// taken up by whoever gets the message, behind the last number.
func (l *lane) relay(ctx context.Context, r *Run) {
	m := r.cp.Load().Mesh.Migration
	if d := r.deadline; !d.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, l.clock.local(d).Add(relayGrace), errOverdue)
		defer cancel()
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		began := time.Now()
		last, err := l.relayOnce(ctx, m, r)
		switch {
		case last != nil:
			l.relayed(r, last)
			return
		case errors.Is(context.Cause(ctx), errOverdue):
			l.relayOverdue(r)
			return
		case ctx.Err() == nil:
			l.host.log.Warn("the replies of a run that is elsewhere do not come", "run", r.id.Run, "to", m.To, "err", err)
		}
		if time.Since(began) > time.Minute {
			wait = 50 * time.Millisecond
		}
		if sleep(ctx, wait) != nil && !errors.Is(context.Cause(ctx), errOverdue) {
			l.leave(r)
			return
		}
	}
}

// relayOnce relays over one connection, and returns the terminal reply when it
// has come.
func (l *lane) relayOnce(ctx context.Context, m *state.Migration, r *Run) (last *handoff.Reply, err error) {
	p, err := l.remote(m.To)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	after, err := l.relayedUpTo(ctx, r)
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
		env, err := l.vouch(r, reply)
		if err != nil {
			return err
		}
		if reply.Last {
			last = &reply
			return nil
		}
		header := nats.Header{jetstream.HeaderSeq: {strconv.FormatUint(reply.Seq, 10)}, HeaderEpoch: {strconv.FormatUint(r.Epoch(), 10)}}
		data, err := l.inEncoding(r, env, header)
		if err != nil {
			return err
		}
		if err := l.cfg.Replies.Publish(ctx, jetstream.Reply{
			Entity: l.host.Entity, TaskID: r.task.Envelope.ID, MsgID: r.id.Run + "." + strconv.FormatUint(reply.Seq, 10), Header: header, Data: data,
		}); err != nil {
			return err
		}
		after = reply.Seq
		return nil
	})
	return last, err
}

// relayedUpTo is the number of the last reply that is stored here.
func (l *lane) relayedUpTo(ctx context.Context, r *Run) (uint64, error) {
	after := uint64(r.cp.Load().Mesh.Stream)
	msg, err := l.cfg.Replies.Last(ctx, l.host.Entity, r.task.Envelope.ID)
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

// vouch reads a reply of the target's: it must answer this task. One whose
// signature cannot be judged here, because its key is unknown, is signed anew as
// the agent's; it came over a connection that was verified.
func (l *lane) vouch(r *Run, reply handoff.Reply) (*envelope.Envelope, error) {
	env, _, err := l.host.node.decode(&nats.Msg{Data: reply.Data, Header: nats.Header(reply.Header)})
	if err != nil {
		return nil, fmt.Errorf("reply %d of the target: %w", reply.Seq, err)
	}
	task := r.task.Envelope
	if env.From != l.host.Entity || env.ReplyTo != task.ID || env.Corr != task.Corr {
		return nil, fmt.Errorf("reply %d of the target answers another task", reply.Seq)
	}
	if err := l.host.node.vouchFor(env, l.host.Signer, l.clock.now()); err != nil {
		return nil, fmt.Errorf("reply %d of the target: %w", reply.Seq, err)
	}
	return env, nil
}

// vouchFor sees to it that a reply from another platform can be verified here: one
// whose key nobody knows is signed anew.
func (n *Node) vouchFor(env *envelope.Envelope, signer *sign.Signer, now time.Time) error {
	_, err := n.cfg.Verifier.Verify(env, now)
	if err == nil {
		return nil
	}
	if code := border(err).Code; code != envelope.CodeKeyUnknown && code != envelope.CodeSigRequired {
		return err
	}
	env.Sig = nil
	if signer == nil {
		return nil
	}
	return signer.Sign(env)
}

// inEncoding writes an envelope as the task's sender speaks.
func (l *lane) inEncoding(r *Run, env *envelope.Envelope, header nats.Header) ([]byte, error) {
	if !r.task.cbor {
		return env.AppendJSON(nil)
	}
	header[headerContentType] = []string{envelope.ContentCBOR}
	return env.AppendCBOR(nil)
}

// relayed ends the run here, as it has ended there.
func (l *lane) relayed(r *Run, last *handoff.Reply) {
	env, err := l.vouch(r, *last)
	var raw []byte
	if err == nil {
		raw, err = env.AppendJSON(nil)
	}
	if err != nil {
		l.stuck(r, err)
		return
	}
	r.mu.Lock()
	if r.end != nil {
		r.mu.Unlock()
		return
	}
	r.observe(PointBeforeTerminal)
	r.begun = time.Now()
	err = r.write(l.ctx, func(c *state.Checkpoint) error {
		m := &c.Mesh
		m.Reply, m.Stream, m.Told = raw, int(last.Seq)-1, ""
		m.Step = state.Step{Kind: state.StepTerminal, Name: string(state.PhaseRelaying), Detail: "at " + clip(m.Migration.Target)}
		c.Doc.Status, c.Doc.Error = aaif.RunCompleted, nil
		if env.Type == envelope.TypeError {
			c.Doc.Status, c.Doc.Error = aaif.RunFailed, r.runError(envelope.ErrorOf(env), 0)
		}
		return nil
	})
	l.afterTerminal(r, err)
}

// relayOverdue ends the run here although its target has not: nobody waits for
// it any more.
func (l *lane) relayOverdue(r *Run) {
	r.mu.Lock()
	if r.end != nil {
		r.mu.Unlock()
		return
	}
	r.observe(PointBeforeTerminal)
	r.begun = time.Now()
	err := r.write(l.ctx, func(c *state.Checkpoint) error { return r.conclude(c, nil, r.overdue()) })
	l.afterTerminal(r, err)
}

// afterTerminal lets the world know of a terminal record. r.mu is held, and is
// not at the end.
func (l *lane) afterTerminal(r *Run, err error) {
	if err == nil {
		r.wrote = true
		r.observe(PointAfterTerminal)
	}
	lost := errors.Is(err, ErrLost)
	r.finish(ErrLost)
	r.mu.Unlock()
	if lost {
		return
	}
	r.task.claim()
	l.settled(r, ended, err)
}
