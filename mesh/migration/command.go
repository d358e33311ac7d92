package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// Allow returns nil if the sender of the order may transfer a run to the order's target. Within
// the mesh every sender that may command the run may transfer it. To another platform, which gets
// its whole content, only an operator or the agent itself may. A task that was delegated to this
// agent cannot leave: its replies need the delegation's chain, which no other platform can write.
func (m *Mover) Allow(o *run.Order, delegated bool) error {
	if o.Intent != intents.TaskMigrate || o.Abort || !run.Remote(o.To) && o.To != intents.MigrateFile {
		return nil
	}
	if delegated {
		return envelope.Errorf(envelope.CodeDenied, "a run of a delegated task cannot be transferred to another platform")
	}
	if o.From == m.cfg.Entity || slices.ContainsFunc(m.cfg.Operators, func(p string) bool { return sign.MatchFrom(p, o.From) }) {
		if run.Remote(o.To) {
			p, err := m.remote(o.To)
			if err == nil {
				p.Close()
			}
			return err
		}
		return nil
	}
	return envelope.Errorf(envelope.CodeDenied, "%s is not an operator, and may not transfer runs to other platforms", clip.Text(o.From, 128))
}

// Forward forwards an order to the platform that runs the run of c, and returns that
// platform's result.
func (m *Mover) Forward(ctx context.Context, c *state.Checkpoint, o *run.Order) (result intents.CommandResult, refused *envelope.Error) {
	about := c.Mesh.Migration
	if about.To == intents.MigrateFile {
		return result, envelope.Errorf(envelope.CodeDenied, "the run is with %s", clip.Text(about.Target, 128))
	}
	if o.Intent == intents.TaskMigrate {
		return result, envelope.Errorf(envelope.CodeDenied, "the run is with %s: from there it can only be moved by that platform", clip.Text(about.Target, 128))
	}
	reply, err := m.forward(ctx, about, c.Doc.RunID, *o)
	if err == nil && reply.Type == envelope.TypeError {
		// Make a new error, with a known code and a clipped copy of the peer's message.
		said := envelope.ErrorOf(reply)
		code := said.Code
		if !code.Known() {
			code = envelope.CodeAgent
		}
		return result, envelope.Errorf(code, "%s says: %s", clip.Text(about.Target, 128), clip.Text(said.Message, 128))
	}
	if err == nil {
		if err = wire.ReadJSON(reply.Payload, &result); err != nil {
			err = fmt.Errorf("its answer: %w", err)
		}
	}
	if err != nil {
		return result, envelope.Errorf(envelope.CodeUnavailable, "the run is with %s, which cannot be asked for now: %w", clip.Text(about.Target, 128), err)
	}
	result.Status = clip.Text(result.Status, 128)
	return result, nil
}

// forward sends an order to the platform that runs the run, and returns the reply.
func (m *Mover) forward(ctx context.Context, about *state.Migration, runID string, o run.Order) (*envelope.Envelope, error) {
	p, err := m.remote(about.To)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	// The order names the run by its own id, which is the same there.
	o.ID, o.Corr, o.Run, o.CopyOf = "", "", runID, o.Envelope
	o.To, o.Platform, o.WaitMS, o.Abort = "", "", 0, false
	e := envelope.New(envelope.TypeTask, m.cfg.Entity, m.cfg.Entity, o.Intent, wire.MustJSON(o))
	e.Priority = envelope.PriorityUrgent
	if err := p.signer.Sign(e); err != nil {
		return nil, err
	}
	raw, err := e.AppendJSON(nil)
	if err != nil {
		return nil, err
	}
	request, err := p.request(about, handoff.ActionCommand)
	if err != nil {
		return nil, err
	}
	answer, err := p.Command(ctx, about.ID, request, raw)
	if err != nil {
		return nil, err
	}
	reply, err := envelope.ParseLimits(answer, m.cfg.Answers.Limits)
	if err == nil && (reply.ReplyTo != e.ID || reply.From != e.To || !reply.Type.Terminal()) {
		err = errors.New("the reply does not answer this command")
	}
	if err != nil {
		return nil, fmt.Errorf("its answer: %w", err)
	}
	return reply, nil
}
