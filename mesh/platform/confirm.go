package platform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// ConfirmOptions say whose verdicts [Platform.Confirm] accepts.
type ConfirmOptions struct {
	// Issuers are patterns of entities that may sign verdicts for the other platform,
	// besides the run's own entity.
	Issuers []string
	// Signer signs the reply in the receipt if the reply's own signature is by a key that
	// is not trusted here; nil: such a reply is stored unsigned. The key must be one that
	// may sign for the run's entity.
	Signer *sign.Signer
}

// Confirm applies another platform's signed verdict to an exported run. Accepted: the run
// here waits for its end there. Refused: the run resumes here. Ended: the run ends here
// with the reply in the receipt. Calling Confirm again with the same verdict is safe.
//
// The verdict must be signed with a key that is trusted here.
func (p *Platform) Confirm(ctx context.Context, receipt handoff.Receipt, o ConfirmOptions) (*state.Checkpoint, error) {
	d := p.cfg.Stores
	if d == nil {
		return nil, sender.ErrLiveOnly
	}
	ring := p.cfg.Answers.Verifier.Ring
	if ring == nil {
		ring = new(sign.Ring)
	}
	v, err := transfer.VerifyVerdict(ring, receipt.Verdict, p.cfg.Name, p.serverTime(ctx))
	if err != nil {
		return nil, err
	}
	id := state.ID{Entity: receipt.Entity, Run: v.RunID}
	for {
		rec, err := d.States.Get(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("run %s of %s: %w", clip.Text(id.Run, 128), clip.Text(id.Entity, 128), err)
		}
		c, err := d.Codec.Read(rec)
		if err != nil {
			return nil, err
		}
		if err := confirms(v, c, o.Issuers); err != nil {
			return nil, err
		}
		change := p.confirmed(ctx, c, v, receipt, o.Signer)
		if change.err != nil || !change.write {
			return c, errors.Join(change.err, p.afterwards(ctx, c, change, o.Signer))
		}
		if _, err := p.store(ctx, id, rec.Revision, c); errors.Is(err, state.ErrChanged) {
			continue
		} else if err != nil {
			return nil, err
		}
		return c, p.afterwards(ctx, c, change, o.Signer)
	}
}

// confirms returns an error if a verdict is about another transfer than the run's, or if
// its issuer may not sign for the other platform.
func confirms(v transfer.Verdict, c *state.Checkpoint, issuers []string) error {
	m := c.Mesh.Migration
	if m == nil || m.ID != v.Handoff || m.Target != v.Target {
		return fmt.Errorf("%w: the verdict is about another transfer than this run's", transfer.ErrTokenState)
	}
	if v.Issuer == c.Mesh.Entity {
		return nil
	}
	for _, pattern := range issuers {
		if sign.MatchFrom(pattern, v.Issuer) {
			return nil
		}
	}
	return fmt.Errorf("%w: %s may not speak for %s here", transfer.ErrTokenKey, clip.Text(v.Issuer, 128), m.Target)
}

// A confirmation lists the effects of a verdict.
type confirmation struct {
	write bool // the record has changed
	kick  bool // the run resumes here: requeue it
	tell  bool // the run has ended: publish its reply
	err   error
}

// confirmed changes the run's checkpoint as the verdict demands, and returns the effects.
func (p *Platform) confirmed(ctx context.Context, c *state.Checkpoint, v transfer.Verdict, receipt handoff.Receipt, signer *sign.Signer) (out confirmation) {
	m := c.Mesh.Migration
	step := func(phase state.Phase) {
		m.Phase, m.Since = phase, p.serverTime(ctx)
		c.Mesh.Step = state.Step{Kind: state.StepMigrate, Name: string(phase), Detail: "says " + clip.Text(v.Target, 128)}
		out.write = true
	}
	moving := run.Exported(c)
	switch v.Outcome {
	case transfer.OutcomeAccepted:
		if moving && m.Phase == state.PhaseCommitted {
			step(state.PhaseRelaying)
		} else if !moving && !c.Terminal() {
			out.err = ErrNotMoving
		}
	case transfer.OutcomeRefused:
		if moving && m.Phase == state.PhaseCommitted {
			step(state.PhaseAborted)
			out.kick = run.Back(c, "", p.serverTime(ctx), clip.Text(v.Reason, 512))
		} else if moving {
			out.err = fmt.Errorf("%w: it has accepted the run before", transfer.ErrTokenState)
		}
	case transfer.OutcomeEnded:
		reply, err := endedWith(v, receipt)
		if err != nil {
			out.err = err
			return out
		}
		if !moving {
			out.tell = c.Terminal()
			return out
		}
		ending := run.Ending{Target: clip.Text(v.Target, 128), Stream: c.Mesh.Stream}
		if reply, ending.Reply, out.err = p.fromReceipt(c, reply, signer, p.serverTime(ctx)); out.err != nil {
			return out
		}
		if problem := envelope.ErrorOf(reply); reply.Type == envelope.TypeError {
			ending.Error = &aaif.RunError{Code: string(problem.Code), Message: problem.Message, OccurredAt: state.Time(p.serverTime(ctx))}
		}
		step(state.PhaseRelaying)
		run.End(c, ending)
		out.tell = true
	}
	return out
}

// endedWith returns the terminal envelope in a receipt, after comparing its hash with the
// verdict's.
func endedWith(v transfer.Verdict, receipt handoff.Receipt) (*envelope.Envelope, error) {
	reply, err := envelope.ParseStored(receipt.Reply)
	if err != nil {
		return nil, fmt.Errorf("the reply in the receipt: %w", err)
	}
	hash, err := reply.Hash()
	if err != nil || hash != v.Reply {
		return nil, fmt.Errorf("%w: the reply in the receipt is not the one that was signed", state.ErrChecksum)
	}
	return reply, nil
}

// fromReceipt converts the terminal envelope of a receipt to the one that is stored here,
// see [answers.Reader.FromPlatform], and encodes it for the record. If that one cannot be sent, it
// is replaced by the error that says so: no later attempt could send it either.
func (p *Platform) fromReceipt(c *state.Checkpoint, reply *envelope.Envelope, signer *sign.Signer, now time.Time) (*envelope.Envelope, json.RawMessage, error) {
	if !reply.Type.Terminal() {
		return nil, nil, fmt.Errorf("%w: the reply in the receipt is of type %s, which ends no task", transfer.ErrTokenState, reply.Type)
	}
	task, err := envelope.ParseStored(c.Mesh.Task)
	if err != nil {
		return nil, nil, fmt.Errorf("the task in the run's record: %w", err)
	}
	out, err := p.cfg.Answers.FromPlatform(c.Mesh.Entity, task, reply, signer, now)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: the reply in the receipt: %w", transfer.ErrTokenState, err)
	}
	raw, err := answers.Encode(out, c.Mesh.CBOR, p.cfg.Sendable)
	if err == nil {
		return out, raw, nil
	}
	if out, err = answers.Failed(c.Mesh.Entity, task, fault.ForPeer(err), signer); err != nil {
		return nil, nil, err
	}
	raw, err = answers.Encode(out, c.Mesh.CBOR, p.cfg.Sendable)
	return out, raw, err
}

// afterwards requeues the run or publishes its reply, after the record was written. It is
// safe to repeat. signer signs the error that is published in the place of a reply that cannot be
// sent: an earlier release has written it, or the server's max_payload was larger.
func (p *Platform) afterwards(ctx context.Context, c *state.Checkpoint, what confirmation, signer *sign.Signer) error {
	if what.kick {
		_, err := client.Requeue(ctx, p.cfg.Stores.Queue, c)
		return err
	}
	if !what.tell {
		return nil
	}
	task, err := envelope.ParseStored(c.Mesh.Task)
	if err != nil {
		return fmt.Errorf("the task in the run's record: %w", err)
	}
	reply, err := answers.End(c, task)
	if err != nil {
		return err
	}
	if err = p.publish(ctx, reply); fault.Unsendable(err) {
		if last, err := p.cfg.Stores.Replies.Last(ctx, reply.Entity, reply.TaskID); err == nil && last.Header.Get(nats.MsgIdHdr) == reply.MsgID {
			return nil // the reply, or the error in its place, is stored
		}
		if reply, err = reply.Instead(err, signer); err == nil {
			err = p.publish(ctx, reply)
		}
	}
	return err
}

// publish stores a reply, unless it is the last one that is stored.
func (p *Platform) publish(ctx context.Context, reply answers.Stored) error {
	msg, err := reply.Message()
	if err != nil {
		return err
	}
	return p.cfg.Stores.Replies.PublishUnless(ctx, msg, func(last jetstream.Message) bool { return bytes.Equal(last.Data, msg.Data) })
}

// Recall restores the status that an exported run had before the export, without the other
// platform's verdict, and resumes the run here if it was running. The caller must be sure that the
// file was not and will not be imported; otherwise two platforms run it. A run that the other
// platform has accepted, by its verdict, is refused with [ErrAcceptedThere], unless evenAccepted:
// that platform is lost for good.
func (p *Platform) Recall(ctx context.Context, id state.ID, why string, evenAccepted bool) (*state.Checkpoint, error) {
	d := p.cfg.Stores
	if d == nil {
		return nil, sender.ErrLiveOnly
	}
	rec, err := d.States.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	c, err := d.Codec.Read(rec)
	if err != nil {
		return nil, err
	}
	if err := recallable(c); err != nil && !(evenAccepted && errors.Is(err, ErrAcceptedThere)) {
		return nil, fmt.Errorf("recall run %s: %w", clip.Text(id.Run, 128), err)
	}
	why = clip.Text(why, 128)
	kick := run.Back(c, "", p.serverTime(ctx), why)
	c.Mesh.Step = state.Step{Kind: state.StepMigrate, Name: string(state.PhaseAborted), Detail: why}
	if _, err := p.store(ctx, id, rec.Revision, c); err != nil {
		return nil, fmt.Errorf("recall run %s: %w", clip.Text(id.Run, 128), err)
	}
	return c, p.afterwards(ctx, c, confirmation{kick: kick}, nil)
}

// recallable returns an error if a run was not exported, or if the other platform has
// accepted it.
func recallable(c *state.Checkpoint) error {
	switch {
	case !run.Exported(c):
		return ErrNotMoving
	case c.Mesh.Migration.Phase == state.PhaseRelaying:
		return fmt.Errorf("%w: it goes on at %s", ErrAcceptedThere, clip.Text(c.Mesh.Migration.Target, 128))
	}
	return nil
}
