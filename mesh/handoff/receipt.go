package handoff

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// A Receipt is the target's decision about a handoff, as a file for its source.
type Receipt struct {
	Handoff string           `json:"handoff"`
	Entity  string           `json:"entity"`
	Run     string           `json:"run"`
	Outcome transfer.Outcome `json:"outcome"` // for people; programs read the verdict
	Verdict string           `json:"verdict"` // a [transfer.Verdict], signed
	Reply   json.RawMessage  `json:"reply,omitempty"`
}

// Receipt signs the current decision about a handoff: the run was accepted, was refused, or has
// ended with a reply. The key must speak for the run's entity, or for another issuer that the
// source accepts.
func (r *Receiver) Receipt(ctx context.Context, id, issuer string, s *sign.Signer) (Receipt, error) {
	h, err := r.load(ctx, id)
	if err != nil {
		return Receipt{}, err
	}
	m := h.migration()
	issuer = cmp.Or(issuer, h.c.Mesh.Entity)
	v := transfer.Verdict{Handoff: id, Issuer: issuer, Source: m.Source, Target: m.Target, RunID: h.c.Doc.RunID, Issued: r.cfg.Now(ctx)}
	out := Receipt{Handoff: id, Entity: h.c.Mesh.Entity, Run: h.c.Doc.RunID}
	switch m.Phase {
	case state.PhaseRefused:
		v.Outcome, v.Reason = transfer.OutcomeRefused, m.Detail
	case state.PhaseAccepted, state.PhaseRunning:
		v.Outcome = transfer.OutcomeAccepted
		if out.Reply, err = r.ended(ctx, h); err != nil {
			return Receipt{}, err
		}
		if out.Reply != nil {
			reply, err := envelope.ParseStored(out.Reply)
			if err != nil {
				return Receipt{}, fmt.Errorf("the reply in the run's record: %w", err)
			}
			v.Outcome = transfer.OutcomeEnded
			if v.Reply, err = reply.Hash(); err != nil {
				return Receipt{}, err
			}
		}
	default:
		return Receipt{}, fmt.Errorf("handoff %s is %s: %w", id, m.Phase, ErrNoVerdict)
	}
	out.Outcome = v.Outcome
	out.Verdict, err = v.Sign(s)
	return out, err
}

// ended returns the terminal envelope of the run, nil while it goes on. The run is known by the
// checkpoint that it began from here: its Migration is another one once it was asked to move on.
func (r *Receiver) ended(ctx context.Context, h *record) (json.RawMessage, error) {
	rec, err := r.cfg.States.Get(ctx, h.c.ID())
	if errors.Is(err, state.ErrNotFound) {
		return nil, nil // the run's record has expired; the run was accepted all the same
	}
	if err != nil {
		return nil, err
	}
	run, err := r.cfg.Codec(h.c.Mesh.Entity).Read(rec)
	if err != nil {
		return nil, err
	}
	is, want := run.Mesh.Parent, h.c.Mesh.Parent
	if is == nil || want == nil || *is != *want || !run.Terminal() {
		return nil, nil
	}
	return run.Mesh.Reply, nil
}

// List returns all stored handoffs, in no particular order. A record that cannot be read, for
// example because this process lacks the key of the agent's runs, is left out, with a warning in
// the log.
func (r *Receiver) List(ctx context.Context) ([]Status, error) {
	var out []Status
	for rec, err := range r.cfg.Handoffs.List(ctx, holder) {
		if err != nil {
			return out, err
		}
		h, err := r.decode(rec)
		if err != nil {
			r.cfg.Logger.Warn("record of a handoff left out: it cannot be read", "handoff", rec.ID.Run, "err", err)
			continue
		}
		s := h.status()
		s.Since, s.Source = h.migration().Since, h.migration().Source
		if s.Phase == state.PhaseRunning {
			s.Status = r.statusOf(ctx, h)
		}
		out = append(out, s)
	}
	return out, nil
}

// statusOf returns the status of a run that its workers have; "" if there is no record of it
// any more, or if it cannot be read.
func (r *Receiver) statusOf(ctx context.Context, h *record) aaif.RunStatus {
	rec, err := r.cfg.States.Get(ctx, h.c.ID())
	if err != nil {
		return ""
	}
	head, err := rec.Header()
	if err != nil {
		return ""
	}
	return head.Status
}
