package platform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// ExportOptions configure [Platform.Export], which writes a run to a file for another
// platform.
type ExportOptions struct {
	Platform string       // the platform that may import the file. Required
	Signer   *sign.Signer // an Ed25519 key that is valid and speaks for Issuer. Required
	Issuer   string       // default: the run's entity
	// Codec writes the document: encrypted with a key that the other platform has, or,
	// with the zero value, unencrypted.
	Codec state.Codec
	// Life is how long the file may be imported; default and at most 15 minutes.
	Life time.Duration
}

// Errors of [Platform.Export], [Platform.Confirm] and [Platform.Recall].
var (
	// ErrEnded: the run has ended.
	ErrEnded = errors.New("the run has ended")
	// ErrNotMoving: the run is not being transferred to another platform by file.
	ErrNotMoving = errors.New("the run is not being transferred to another platform as a file")
	// ErrMoving: the run is already being transferred to another target.
	ErrMoving = errors.New("the run is already being transferred to another target")
	// ErrAcceptedThere: the other platform has accepted the run and owns it now.
	ErrAcceptedThere = errors.New("the other platform has accepted the run")
	// ErrStopping: the run was asked to stop, but its step has not ended. When the step
	// has ended, the run is parked until it is exported or the transfer is aborted.
	ErrStopping = errors.New("the run has not stopped yet")
)

// Export returns a run as a document with a migration token, for another platform. From
// then on the run is parked with status migrating, until [Platform.Confirm] is called with
// the other platform's signed verdict, or [Platform.Recall] by an operator who knows that the
// file will not be imported.
//
// The run's owner stops it as for a pause; Export waits for that until ctx ends. If the
// file was lost, call Export again for the same platform: only one of the files can be
// imported.
func (p *Platform) Export(ctx context.Context, id state.ID, o ExportOptions) ([]byte, error) {
	d := p.cfg.Stores
	switch {
	case d == nil:
		return nil, sender.ErrLiveOnly
	case o.Platform == "":
		return nil, errors.New("export: Platform is required")
	case o.Signer == nil || o.Signer.Waits():
		return nil, errors.New("export: a migration token must be signed")
	}
	o.Issuer = cmp.Or(o.Issuer, id.Entity)
	if o.Life <= 0 {
		o.Life = transfer.MaxTokenLife
	}
	c, rev, err := p.halt(ctx, id, o)
	if err != nil {
		return nil, fmt.Errorf("export run %s: %w", id.Run, err)
	}
	m := c.Mesh.Migration
	if m.Phase == state.PhaseCaptured {
		// From here on a file may exist: only the other platform's verdict or Recall may
		// resume the run here.
		m.Phase, m.Target, m.Issuer, m.Since = state.PhaseCommitted, o.Platform, o.Issuer, p.serverTime(ctx)
		c.Mesh.Step = state.Step{Kind: state.StepMigrate, Name: string(state.PhaseCommitted), Detail: "to " + clip.Text(o.Platform, 128) + ", as a file"}
		if _, err = p.store(ctx, id, rev, c); err != nil {
			return nil, fmt.Errorf("export run %s: %w", id.Run, err)
		}
	} else if m.Target != o.Platform {
		return nil, fmt.Errorf("export run %s: %w: it was exported for %s", id.Run, ErrMoving, m.Target)
	}
	return p.pack(ctx, c, o)
}

// halt requests the stop of the run for the export, waits for it, and returns the run's
// checkpoint and its revision.
func (p *Platform) halt(ctx context.Context, id state.ID, o ExportOptions) (c *state.Checkpoint, rev uint64, err error) {
	ready := func(rec state.Record) (bool, error) {
		if c, err = p.cfg.Stores.Codec.Read(rec); err != nil {
			return false, err
		}
		rev = rec.Revision
		switch run.ExportStateOf(c) {
		case run.Finished:
			return false, ErrEnded
		case run.Elsewhere:
			return false, fmt.Errorf("%w: to %s", ErrMoving, c.Mesh.Migration.To)
		case run.Stopped:
			return true, nil
		}
		return false, nil
	}
	rec, err := p.cfg.Stores.States.Get(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	if ok, err := ready(rec); ok || err != nil {
		return c, rev, err
	}
	if _, err := p.cfg.Client.Command(ctx, id.Entity, intents.MigrateTask{Target: intents.Target{Run: id.Run}, To: intents.MigrateFile, Platform: o.Platform}); err != nil {
		// The run may have stopped meanwhile because of an earlier request.
		if rec, bad := p.cfg.Stores.States.Get(ctx, id); bad == nil {
			if ok, why := ready(rec); ok || why != nil {
				return c, rev, why
			}
		}
		return nil, 0, err
	}
	watching, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err = jetstream.WatchRun(watching, p.cfg.Stores.States, id, func(rec state.Record) {
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
func (p *Platform) pack(ctx context.Context, c *state.Checkpoint, o ExportOptions) ([]byte, error) {
	out := c.Outbound(p.cfg.Name, o.Platform, p.cfg.Version)
	doc, err := o.Codec.Encode(out)
	if err != nil {
		return nil, err
	}
	now := p.serverTime(ctx)
	token, err := transfer.Grant{
		ID: c.Mesh.Migration.ID, Issuer: o.Issuer, Source: p.cfg.Name, Target: o.Platform,
		AgentID: out.Doc.AgentID, RunID: out.Doc.RunID, StateID: out.Doc.StateID, Checksum: out.Doc.Provenance.Checksum,
		Issued: now, Expires: now.Add(min(o.Life, transfer.MaxTokenLife)),
	}.Sign(o.Signer)
	if err != nil {
		return nil, err
	}
	return transfer.PutToken(doc, token)
}
