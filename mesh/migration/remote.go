package migration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// remote is a client for the receiver of another platform.
type remote struct {
	*handoff.Client
	signer *sign.Signer
	m      *Mover
}

// errNoRemotes says that this worker transfers no runs to other platforms.
var errNoRemotes = envelope.Errorf(envelope.CodeDenied, "this worker transfers no runs to other platforms: name the targets with aeemesh worker --handoff-to")

// remote returns the client for the receiver at a URL, with the key that signs its
// requests.
func (m *Mover) remote(url string) (*remote, error) {
	if m.cfg.Remotes == nil {
		return nil, errNoRemotes
	}
	signer, err := m.tokenSigner()
	if err != nil {
		return nil, err
	}
	if signer == nil {
		return nil, envelope.Errorf(envelope.CodeDenied, "%s has no key: a migration token to another platform must be signed with one that is trusted there", m.cfg.Entity)
	}
	client, err := m.cfg.Remotes(url)
	if err != nil {
		return nil, envelope.Errorf(envelope.CodeDenied, "%s", err.Error()).WithCause(err)
	}
	return &remote{client, signer, m}, nil
}

// request signs a request about a transfer that has begun.
func (p *remote) request(about *state.Migration, action string) (string, error) {
	return transfer.Request{Handoff: about.ID, Issuer: p.m.cfg.Entity, Target: about.Target, Action: action, Issued: p.m.host.Now()}.Sign(p.signer)
}

// send transfers a captured run to another platform: the target stages it, this worker
// releases it, the target accepts it.
func (m *Mover) send(ctx context.Context, r *Run) {
	p, err := m.remote(r.migration().To)
	if err != nil {
		m.abort(r, err)
		return
	}
	defer p.Close()
	sent, err := m.stage(ctx, p, r)
	if err != nil {
		var said *transfer.Error
		if m.abort(r, err); !errors.As(err, &said) || !said.Remote {
			m.unstage(r) // the target may have staged a part
		}
		return
	}
	r.Observe(PointStaged)
	if err := r.Advance(state.PhaseCommitted, func(c *state.Checkpoint) error {
		if c.Doc.StateID != sent { // each write of the record has a state_id of its own
			return errChangedMeanwhile
		}
		return nil
	}); err != nil {
		if errors.Is(err, errChangedMeanwhile) {
			m.abort(r, err)
		} else {
			r.Requeue(err) // the next worker aborts the transfer, or continues it
		}
		m.unstage(r)
		return
	}
	m.decide(ctx, r)
}

// errChangedMeanwhile aborts a transfer, because a command changed the run after it was
// sent to the target, and that change would be lost.
var errChangedMeanwhile = envelope.Errorf(envelope.CodeUnavailable, "a command changed the run during the transfer; request the transfer again")

// stage streams the run to the target, and returns the state_id of the checkpoint that was sent.
func (m *Mover) stage(ctx context.Context, p *remote, r *Run) (sent string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, moveTimeout, fmt.Errorf("%w: %v", transfer.ErrTimeout, moveTimeout))
	defer cancel()
	about, err := p.About(ctx)
	if err != nil {
		return "", err
	}
	if err := r.Advance(state.PhaseCaptured, func(c *state.Checkpoint) error {
		c.Mesh.Migration.Target, c.Mesh.Migration.Issuer = about.Platform, m.cfg.Entity
		return nil
	}); err != nil {
		return "", err
	}
	c, _ := r.Checkpoint()
	out := c.Outbound(m.cfg.Platform, about.Platform, m.cfg.Version)
	doc, err := (state.Codec{MaxBytes: m.cfg.Codec.MaxBytes}).Encode(out)
	if err != nil {
		return "", err
	}
	now := m.host.Now()
	token, err := transfer.Grant{
		ID: c.Mesh.Migration.ID, Issuer: m.cfg.Entity, Source: m.cfg.Platform, Target: about.Platform,
		AgentID: out.Doc.AgentID, RunID: out.Doc.RunID, StateID: out.Doc.StateID, Checksum: out.Doc.Provenance.Checksum,
		Issued: now, Expires: now.Add(transfer.RequestLife), // so a target whose clock refuses requests refuses the run now
	}.Sign(p.signer)
	if err != nil {
		return "", err
	}
	r.Observe(PointOffer)
	_, err = p.Send(ctx, token, doc)
	return c.Doc.StateID, err
}

// unstage tells the target to drop the staged run, in the background. If the request is lost, the
// target refuses the run after its own timeout.
func (m *Mover) unstage(r *Run) {
	about := r.migration()
	if about.Target == "" {
		return
	}
	m.host.Background(func(ctx context.Context) {
		p, err := m.remote(about.To)
		if err != nil {
			return
		}
		defer p.Close()
		ctx, cancel := context.WithTimeout(ctx, sched.StoreTimeout)
		defer cancel()
		if request, err := p.request(about, handoff.ActionRefuse); err == nil {
			_, _ = p.Refuse(ctx, about.ID, request)
		}
	})
}

// decide asks the target until it has accepted or refused the run, or the task's deadline has
// passed. This worker has released the run: no worker of this mesh may run it until the target
// has refused.
func (m *Mover) decide(ctx context.Context, r *Run) {
	about := r.migration()
	ctx, cancel := m.untilOverdue(ctx, r)
	defer cancel()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		status, err := m.requestDecision(ctx, about)
		switch {
		case err != nil:
		case status.Phase == state.PhaseAccepted, status.Phase == state.PhaseRunning:
			if err := r.Advance(state.PhaseRelaying, nil); err != nil {
				r.Requeue(err)
				return
			}
			m.relay(ctx, r)
			return
		case status.Phase == state.PhaseRefused:
			m.abort(r, fmt.Errorf("%w: %s", transfer.ErrAborted, status.Reason))
			return
		}
		if ctx.Err() == nil {
			m.cfg.Log.Warn("unknown whether the target has accepted the run: it does not answer", "run", r.id(), "to", about.To, "err", err)
		}
		if !pause.For(ctx, wait) {
			if errors.Is(context.Cause(ctx), errOverdue) {
				r.Fail(nil)
			} else {
				r.Requeue(nil)
			}
			return
		}
	}
}

// requestDecision makes one attempt to learn the target's decision. A target that does not know
// the transfer is asked to refuse it, so that requests that arrive later have no effect.
func (m *Mover) requestDecision(ctx context.Context, about *state.Migration) (handoff.Status, error) {
	p, err := m.remote(about.To)
	if err != nil {
		return handoff.Status{}, err
	}
	defer p.Close()
	request, err := p.request(about, handoff.ActionCommit)
	if err != nil {
		return handoff.Status{}, err
	}
	status, err := p.Commit(ctx, about.ID, request)
	if !errors.Is(err, handoff.ErrUnknown) && !errors.Is(err, handoff.ErrNotStaged) {
		return status, err
	}
	if request, err = p.request(about, handoff.ActionRefuse); err != nil {
		return handoff.Status{}, err
	}
	return p.Refuse(ctx, about.ID, request)
}
