package mesh

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// remote is a client for the receiver of another platform.
type remote struct {
	*handoff.Client
	signer *sign.Signer
	lane   *lane
}

// errNoRemotes says that this worker transfers no runs to other platforms.
var errNoRemotes = envelope.Errorf(envelope.CodeDenied, "this worker transfers no runs to other platforms: name the targets with aeemesh worker --handoff-to")

// remote returns the client for the receiver at a URL, with the key that signs its
// requests.
func (tr *transfers) remote(url string) (*remote, error) {
	if tr.cfg.Remotes == nil {
		return nil, errNoRemotes
	}
	signer, err := tr.tokenSigner()
	if err != nil {
		return nil, err
	}
	if signer == nil {
		return nil, envelope.Errorf(envelope.CodeDenied, "%s has no key: a migration token to another platform must be signed with one that is trusted there", tr.host.Entity)
	}
	client, err := tr.cfg.Remotes(url)
	if err != nil {
		return nil, envelope.Errorf(envelope.CodeDenied, "%s", err.Error()).WithCause(err)
	}
	return &remote{client, signer, tr.lane}, nil
}

// request signs a request about a transfer that has begun.
func (p *remote) request(m *state.Migration, action string) (string, error) {
	return transfer.Request{Handoff: m.ID, Issuer: p.lane.host.Entity, Target: m.Target, Action: action, Issued: p.lane.clock.now()}.Sign(p.signer)
}

// send transfers a captured run to another platform: the target stages it, this worker
// releases it, the target accepts it.
func (tr *transfers) send(ctx context.Context, r *Run) {
	p, err := tr.remote(r.cp.Load().Mesh.Migration.To)
	if err != nil {
		tr.abortTransfer(r, err)
		return
	}
	defer p.Close()
	sent, err := tr.stage(ctx, p, r)
	if err != nil {
		var said *transfer.Error
		if tr.abortTransfer(r, err); !errors.As(err, &said) || !said.Remote {
			tr.work.Go(func() { tr.unstage(r) }) // the target may have staged a part
		}
		return
	}
	r.observe(PointStaged)
	if err := tr.advance(r, state.PhaseCommitted, func(*state.Checkpoint) error {
		if r.rev != sent {
			return errChangedMeanwhile
		}
		return nil
	}); err != nil {
		switch {
		case errors.Is(err, errChangedMeanwhile):
			tr.abortTransfer(r, err)
		case !errors.Is(err, ErrLost):
			tr.nakFailed(r, err) // the next worker aborts the transfer, or continues it
		}
		tr.unstage(r)
		return
	}
	tr.decide(ctx, r)
}

// errChangedMeanwhile aborts a transfer, because a command changed the run after it was
// sent to the target, and that change would be lost.
var errChangedMeanwhile = envelope.Errorf(envelope.CodeUnavailable, "a command changed the run during the transfer; request the transfer again")

// stage streams the run to the target, and returns the revision that was sent.
func (tr *transfers) stage(ctx context.Context, p *remote, r *Run) (sent uint64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, moveTimeout, fmt.Errorf("%w: %v", transfer.ErrTimeout, moveTimeout))
	defer cancel()
	about, err := p.About(ctx)
	if err != nil {
		return 0, err
	}
	if err := tr.advance(r, state.PhaseCaptured, func(c *state.Checkpoint) error {
		c.Mesh.Migration.Target, c.Mesh.Migration.Issuer = about.Platform, tr.host.Entity
		return nil
	}); err != nil {
		return 0, err
	}
	r.mu.Lock()
	c, sent := r.cp.Load(), r.rev
	r.mu.Unlock()
	out := c.Outbound(tr.cfg.Platform, about.Platform, tr.host.node.cfg.Version)
	doc, err := (state.Codec{MaxBytes: tr.records.codec.MaxBytes}).Encode(out)
	if err != nil {
		return 0, err
	}
	now := tr.clock.now()
	token, err := transfer.Grant{
		ID: c.Mesh.Migration.ID, Issuer: tr.host.Entity, Source: tr.cfg.Platform, Target: about.Platform,
		AgentID: out.Doc.AgentID, RunID: out.Doc.RunID, StateID: out.Doc.StateID, Checksum: out.Doc.Provenance.Checksum,
		Issued: now, Expires: now.Add(moveTimeout),
	}.Sign(p.signer)
	if err != nil {
		return 0, err
	}
	r.observe(PointOffer)
	_, err = p.Send(ctx, token, doc)
	return sent, err
}

// unstage tells the target to drop the staged run. If the request is lost, the target
// finds out by itself.
func (tr *transfers) unstage(r *Run) {
	m := r.cp.Load().Mesh.Migration
	p, err := tr.remote(m.To)
	if err != nil || m.Target == "" {
		return
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(tr.ctx, storeTimeout)
	defer cancel()
	if request, err := p.request(m, handoff.ActionRefuse); err == nil {
		_, _ = p.Refuse(ctx, m.ID, request)
	}
}

// decide asks the target until it has accepted or refused the run. This worker has
// released the run: no worker of this mesh may run it until the target has refused.
func (tr *transfers) decide(ctx context.Context, r *Run) {
	m := r.cp.Load().Mesh.Migration
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		status, err := tr.requestDecision(ctx, m)
		switch {
		case err != nil:
		case status.Phase == state.PhaseAccepted, status.Phase == state.PhaseRunning:
			if err := tr.advance(r, state.PhaseRelaying, nil); err != nil {
				if !errors.Is(err, ErrLost) {
					tr.nakFailed(r, err)
				}
				return
			}
			// Cancel the run's open calls in this mesh: the target makes them again.
			tr.work.Go(func() { tr.replies.stopCalls(r.cp.Load()) })
			tr.relay(ctx, r)
			return
		case status.Phase == state.PhaseRefused:
			tr.abortTransfer(r, fmt.Errorf("%w: %s", transfer.ErrAborted, status.Reason))
			return
		}
		if ctx.Err() == nil {
			tr.host.log.Warn("unknown whether the target has accepted the run: it does not answer", "run", r.id.Run, "to", m.To, "err", err)
		}
		if sleep(ctx, wait) != nil {
			tr.nakMigrated(r)
			return
		}
	}
}

// requestDecision makes one attempt to learn the target's decision. A target that does not know
// the transfer is asked to refuse it, so that requests that arrive later have no effect.
func (tr *transfers) requestDecision(ctx context.Context, m *state.Migration) (handoff.Status, error) {
	p, err := tr.remote(m.To)
	if err != nil {
		return handoff.Status{}, err
	}
	defer p.Close()
	request, err := p.request(m, handoff.ActionCommit)
	if err != nil {
		return handoff.Status{}, err
	}
	status, err := p.Commit(ctx, m.ID, request)
	if !errors.Is(err, handoff.ErrUnknown) && !errors.Is(err, handoff.ErrNotStaged) {
		return status, err
	}
	if request, err = p.request(m, handoff.ActionRefuse); err != nil {
		return handoff.Status{}, err
	}
	return p.Refuse(ctx, m.ID, request)
}

// nakMigrated naks the message of a run that is on another platform, because this
// worker stops. It does nothing if the run was lost.
func (tr *transfers) nakMigrated(r *Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		return
	}
	r.stop(ErrLost)
	tr.unlist(r)
	tr.nak(r.hold, 0)
}
