package mesh

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// ExportOptions configure [Node.Export], which writes a run to a file for another
// platform.
type ExportOptions struct {
	Platform string       // the platform that may import the file. Required
	Signer   *sign.Signer // an Ed25519 key that speaks for Issuer. Required
	Issuer   string       // default: the run's entity
	// Codec writes the document: encrypted with a key that the other platform has, or,
	// with the zero value, unencrypted.
	Codec state.Codec
	// Life is how long the file may be imported; default and at most 15 minutes.
	Life time.Duration
}

// Errors of [Node.Export], [Node.Confirm] and [Node.Recall].
var (
	// ErrEnded: the run has ended.
	ErrEnded = errors.New("the run has ended")
	// ErrNotMoving: the run is not being transferred to another platform by file.
	ErrNotMoving = errors.New("the run is not being transferred to another platform as a file")
	// ErrMoving: the run is already being transferred to another target.
	ErrMoving = errors.New("the run is already being transferred to another target")
	// ErrStopping: the run was asked to stop, but its step has not ended. When the step
	// has ended, the run is parked until it is exported or the transfer is aborted.
	ErrStopping = errors.New("the run has not stopped yet")
)

// Export returns a run as a document with a migration token, for another platform. From
// then on the run is parked with status migrating, until [Node.Confirm] is called with
// the other platform's signed verdict, or [Node.Recall] by an operator who knows that the
// file will not be imported.
//
// The run's owner stops it as for a pause; Export waits for that until ctx ends. If the
// file was lost, call Export again for the same platform: only one of the files can be
// imported.
func (n *Node) Export(ctx context.Context, id state.ID, o ExportOptions) ([]byte, error) {
	d := n.cfg.Durable
	switch {
	case d == nil:
		return nil, sender.ErrLiveOnly
	case o.Platform == "":
		return nil, errors.New("export: Platform is required")
	case o.Signer == nil:
		return nil, errors.New("export: a migration token must be signed")
	}
	if o.Issuer == "" {
		o.Issuer = id.Entity
	}
	if o.Life <= 0 {
		o.Life = transfer.MaxTokenLife
	}
	c, rev, err := n.halt(ctx, id, o)
	if err != nil {
		return nil, fmt.Errorf("export run %s: %w", id.Run, err)
	}
	m := c.Mesh.Migration
	if m.Phase == state.PhaseCaptured {
		// From here on a file may exist: only the other platform's verdict or Recall may
		// resume the run here.
		m.Phase, m.Target, m.Issuer, m.Since = state.PhaseCommitted, o.Platform, o.Issuer, n.serverTime(ctx)
		c.Mesh.Step = state.Step{Kind: state.StepMigrate, Name: string(state.PhaseCommitted), Detail: "to " + clip.Text(o.Platform, 128) + ", as a file"}
		if _, err = n.store(ctx, id, rev, c); err != nil {
			return nil, fmt.Errorf("export run %s: %w", id.Run, err)
		}
	} else if m.Target != o.Platform {
		return nil, fmt.Errorf("export run %s: %w: it was exported for %s", id.Run, ErrMoving, m.Target)
	}
	return n.pack(ctx, c, o)
}

// halt requests the stop of the run for the export, waits for it, and returns the run's
// checkpoint and its revision.
func (n *Node) halt(ctx context.Context, id state.ID, o ExportOptions) (c *state.Checkpoint, rev uint64, err error) {
	ready := func(rec state.Record) (bool, error) {
		if c, err = n.cfg.Durable.Codec.Read(rec); err != nil {
			return false, err
		}
		rev = rec.Revision
		switch run.Stands(c) {
		case run.Over:
			return false, ErrEnded
		case run.Elsewhere:
			return false, fmt.Errorf("%w: to %s", ErrMoving, c.Mesh.Migration.To)
		case run.Still:
			return true, nil
		}
		return false, nil
	}
	rec, err := n.cfg.Durable.States.Get(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	if ok, err := ready(rec); ok || err != nil {
		return c, rev, err
	}
	if _, err := n.Command(ctx, id.Entity, intents.MigrateTask{Target: intents.Target{Run: id.Run}, To: intents.MigrateFile, Platform: o.Platform}); err != nil {
		// The run may have stopped meanwhile because of an earlier request.
		if rec, bad := n.cfg.Durable.States.Get(ctx, id); bad == nil {
			if ok, why := ready(rec); ok || why != nil {
				return c, rev, why
			}
		}
		return nil, 0, err
	}
	watching, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err = n.cfg.Durable.States.Watch(watching, id, func(rec state.Record) {
		if watching.Err() != nil {
			return
		}
		if len(rec.Data) == 0 {
			stop(state.ErrNotFound)
		} else if ok, err := ready(rec); ok || err != nil {
			stop(err)
		}
	})
	cause := context.Cause(watching)
	switch {
	case err != nil && ctx.Err() == nil:
		return nil, 0, err
	case errors.Is(cause, context.Canceled) && ctx.Err() == nil: // stop(nil)
		return c, rev, nil
	}
	if ctx.Err() != nil {
		cause = fmt.Errorf("%w: %w", ErrStopping, ctx.Err())
	}
	return nil, 0, cause
}

// pack encodes the run's document and adds a signed migration token.
func (n *Node) pack(ctx context.Context, c *state.Checkpoint, o ExportOptions) ([]byte, error) {
	d := n.cfg.Durable
	out := c.Outbound(d.Platform, o.Platform, n.cfg.Version)
	doc, err := o.Codec.Encode(out)
	if err != nil {
		return nil, err
	}
	now := n.serverTime(ctx)
	token, err := transfer.Grant{
		ID: c.Mesh.Migration.ID, Issuer: o.Issuer, Source: d.Platform, Target: o.Platform,
		AgentID: out.Doc.AgentID, RunID: out.Doc.RunID, StateID: out.Doc.StateID, Checksum: out.Doc.Provenance.Checksum,
		Issued: now, Expires: now.Add(min(o.Life, transfer.MaxTokenLife)),
	}.Sign(o.Signer)
	if err != nil {
		return nil, err
	}
	return transfer.PutToken(doc, token)
}

// ConfirmOptions say whose verdicts [Node.Confirm] accepts.
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
func (n *Node) Confirm(ctx context.Context, receipt handoff.Receipt, o ConfirmOptions) (*state.Checkpoint, error) {
	d := n.cfg.Durable
	if d == nil {
		return nil, sender.ErrLiveOnly
	}
	ring := n.cfg.Verifier.Ring
	if ring == nil {
		ring = new(sign.Ring)
	}
	v, err := transfer.VerifyVerdict(ring, receipt.Verdict, d.Platform, n.serverTime(ctx))
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
		change := n.confirmed(ctx, c, v, receipt, o.Signer)
		if change.err != nil || !change.write {
			return c, errors.Join(change.err, n.afterwards(ctx, c, change))
		}
		if _, err := n.store(ctx, id, rec.Revision, c); errors.Is(err, state.ErrChanged) {
			continue
		} else if err != nil {
			return nil, err
		}
		return c, n.afterwards(ctx, c, change)
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
	for _, p := range issuers {
		if sign.MatchFrom(p, v.Issuer) {
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
func (n *Node) confirmed(ctx context.Context, c *state.Checkpoint, v transfer.Verdict, receipt handoff.Receipt, signer *sign.Signer) (out confirmation) {
	m := c.Mesh.Migration
	step := func(phase state.Phase) {
		m.Phase, m.Since = phase, n.serverTime(ctx)
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
			out.kick = run.Back(c, "", n.serverTime(ctx), clip.Text(v.Reason, 128))
		} else if moving {
			out.err = fmt.Errorf("%w: it has accepted the run before", transfer.ErrTokenState)
		}
	case transfer.OutcomeEnded:
		reply, err := endedWith(c, v, receipt)
		if err != nil {
			out.err = err
			return out
		}
		if !moving {
			out.tell = c.Terminal()
			return out
		}
		if reply, out.err = n.fromReceipt(c, reply, signer, n.serverTime(ctx)); out.err != nil {
			return out
		}
		ending := run.Ending{Target: clip.Text(v.Target, 128), Stream: c.Mesh.Stream}
		if ending.Reply, out.err = reply.AppendJSON(nil); out.err != nil {
			return out
		}
		if problem := envelope.ErrorOf(reply); reply.Type == envelope.TypeError {
			ending.Error = &aaif.RunError{Code: string(problem.Code), Message: problem.Message, OccurredAt: state.Time(n.serverTime(ctx))}
		}
		step(state.PhaseRelaying)
		run.End(c, ending)
		out.tell = true
	}
	return out
}

// endedWith returns the terminal envelope in a receipt, after comparing its hash with the
// verdict's.
func endedWith(c *state.Checkpoint, v transfer.Verdict, receipt handoff.Receipt) (*envelope.Envelope, error) {
	reply, err := envelope.Parse(receipt.Reply)
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
// see [Node.fromPeer].
func (n *Node) fromReceipt(c *state.Checkpoint, reply *envelope.Envelope, signer *sign.Signer, now time.Time) (*envelope.Envelope, error) {
	if !reply.Type.Terminal() {
		return nil, fmt.Errorf("%w: the reply in the receipt is of type %s, which ends no task", transfer.ErrTokenState, reply.Type)
	}
	task, err := envelope.Parse(c.Mesh.Task)
	if err != nil {
		return nil, fmt.Errorf("the task in the run's record: %w", err)
	}
	out, err := n.fromPeer(c.Mesh.Entity, task, reply, signer, now)
	if err != nil {
		return nil, fmt.Errorf("%w: the reply in the receipt: %w", transfer.ErrTokenState, err)
	}
	return out, nil
}

// afterwards requeues the run or publishes its reply, after the record was written. It is
// safe to repeat.
func (n *Node) afterwards(ctx context.Context, c *state.Checkpoint, what confirmation) error {
	if what.kick {
		_, err := requeueRun(ctx, n.cfg.Durable.Queue, c)
		return err
	}
	if !what.tell {
		return nil
	}
	task, err := envelope.Parse(c.Mesh.Task)
	if err != nil {
		return fmt.Errorf("the task in the run's record: %w", err)
	}
	reply, err := answers.End(c, task)
	if err != nil {
		return err
	}
	msg, err := reply.Message()
	if err != nil {
		return err
	}
	return n.cfg.Durable.Replies.Publish(ctx, msg)
}

// Recall gives an exported run the status back that it had before the export, without the
// other platform's verdict, and resumes it here if it was running. The caller must be sure
// that the file was not and will not be imported; otherwise two platforms run it.
func (n *Node) Recall(ctx context.Context, id state.ID, why string) (*state.Checkpoint, error) {
	d := n.cfg.Durable
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
	if !run.Exported(c) {
		return nil, fmt.Errorf("recall run %s: %w", clip.Text(id.Run, 128), ErrNotMoving)
	}
	why = clip.Text(why, 128)
	kick := run.Back(c, "", n.serverTime(ctx), why)
	c.Mesh.Step = state.Step{Kind: state.StepMigrate, Name: string(state.PhaseAborted), Detail: why}
	if _, err := n.store(ctx, id, rec.Revision, c); err != nil {
		return nil, fmt.Errorf("recall run %s: %w", clip.Text(id.Run, 128), err)
	}
	return c, n.afterwards(ctx, c, confirmation{kick: kick})
}

// store writes a checkpoint over a revision.
func (n *Node) store(ctx context.Context, id state.ID, prev uint64, c *state.Checkpoint) (uint64, error) {
	data, err := n.cfg.Durable.Codec.Over(prev).Encode(c)
	if err != nil {
		return 0, err
	}
	return n.cfg.Durable.States.Put(ctx, id, prev, data)
}

// serverTime returns the server's time, or this machine's if the server's cannot be read.
func (n *Node) serverTime(ctx context.Context) time.Time {
	if now, err := n.cfg.Durable.Clock.Now(ctx); err == nil {
		return now.UTC()
	}
	return time.Now().UTC()
}
