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
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// ExportOptions say how [Node.Export] writes a run down for another platform.
type ExportOptions struct {
	Platform string       // whom it is for. Required
	Signer   *sign.Signer // an Ed25519 key that speaks for Issuer. Required
	Issuer   string       // default: the run's entity
	// Codec writes the document: sealed with a key that the other platform has,
	// or, as the zero value, clear.
	Codec state.Codec
	// Life is how long the file may be imported; default and at most 15 minutes.
	Life time.Duration
}

// What keeps a run from being exported, confirmed or taken back.
var (
	// ErrEnded: the run has ended.
	ErrEnded = errors.New("the run has ended")
	// ErrNotMoving: the run is not on its way to another platform by file.
	ErrNotMoving = errors.New("the run is not on its way to another platform as a file")
	// ErrMoving: the run is being moved elsewhere already.
	ErrMoving = errors.New("the run is being moved elsewhere already")
	// ErrStopping: the run is asked to stop, and its step has not ended. It will
	// stand still then, until it is exported or the move is taken back.
	ErrStopping = errors.New("the run has not stopped yet")
)

// Export writes a run down for another platform, as a document with a migration
// token. The run stands still from then on: its status is migrating until the
// other platform's word on it comes back ([Node.Confirm]), or somebody takes it
// back who knows that the file is gone ([Node.Recall]).
//
// Its worker stops it as for a pause; Export waits for that until ctx ends. It
// may be called again, for the same platform, when the file was lost: of all such
// files one can be imported.
func (n *Node) Export(ctx context.Context, id state.ID, o ExportOptions) ([]byte, error) {
	d := n.cfg.Durable
	switch {
	case d == nil:
		return nil, errLiveOnly
	case o.Platform == "":
		return nil, errors.New("export: which platform is it for?")
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
		// From here on a file may be about: only the other platform's word, or
		// somebody who knows better, brings the run back.
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

// halt brings the run to a stop, to be exported, and returns it.
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
		// It may have come to a stop meanwhile that was asked for before.
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

// pack makes the file.
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

// ConfirmOptions say whose word [Node.Confirm] takes.
type ConfirmOptions struct {
	// Issuers are patterns of entities that may speak for the other platform,
	// besides the run's own entity.
	Issuers []string
	// Signer signs a reply anew whose own key nobody here knows; nil leaves it
	// unsigned. It must speak for the run's entity.
	Signer *sign.Signer
}

// Confirm brings another platform's word on an exported run back: that it has
// accepted it, that it has refused it, and so the run goes on here, or how it has
// ended there, and so it ends here. It may be called again with the same word.
//
// The word must be signed with a key that is trusted here.
func (n *Node) Confirm(ctx context.Context, receipt handoff.Receipt, o ConfirmOptions) (*state.Checkpoint, error) {
	d := n.cfg.Durable
	if d == nil {
		return nil, errLiveOnly
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

// confirms reports whether a verdict is about the run's move.
func confirms(v transfer.Verdict, c *state.Checkpoint, issuers []string) error {
	m := c.Mesh.Migration
	if m == nil || m.ID != v.Handoff || m.Target != v.Target {
		return fmt.Errorf("%w: the verdict is about another move than this run's", transfer.ErrTokenState)
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

// A confirmation is what follows from a verdict.
type confirmation struct {
	write bool // the record has changed
	kick  bool // the run goes on
	tell  bool // the run has ended
	err   error
}

// confirmed makes of a run what the verdict says.
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

// endedWith is the terminal envelope that a receipt brings.
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

// fromReceipt is the terminal envelope that is told here for the one in a receipt,
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

// afterwards does what follows from a record that is written. It does no harm
// when it is done again.
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
	reply, err := endReply(c, task)
	if err != nil {
		return err
	}
	msg, err := reply.message()
	if err != nil {
		return err
	}
	return n.cfg.Durable.Replies.Publish(ctx, msg)
}

// Recall takes an exported run back without the other platform's word. Whoever
// calls it knows that the file has not been imported, and will not be: else the
// run has two owners. It goes on here with what it was doing.
func (n *Node) Recall(ctx context.Context, id state.ID, why string) (*state.Checkpoint, error) {
	d := n.cfg.Durable
	if d == nil {
		return nil, errLiveOnly
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

// serverTime is the server's time, or this machine's where it does not tell.
func (n *Node) serverTime(ctx context.Context) time.Time {
	if now, err := n.cfg.Durable.Clock.Now(ctx); err == nil {
		return now.UTC()
	}
	return time.Now().UTC()
}
