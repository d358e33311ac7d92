package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// mayMove reports whether the sender of the order may transfer the run to the order's
// target. Within the mesh every sender may that may command the run. To another
// platform, which gets all of its content, an operator or the agent itself may. A task
// that was delegated to this agent cannot leave: its replies need the delegation's
// chain, which no other platform can write.
func (tr *transfers) mayMove(o *order, t *Task) error {
	if o.Intent != intents.TaskMigrate || o.Abort || !run.Remote(o.To) && o.To != intents.MigrateFile {
		return nil
	}
	if h, _, _ := t.readHanded(); h != nil {
		return envelope.Errorf(envelope.CodeDenied, "a run of a delegated task cannot be transferred to another platform")
	}
	if o.From == tr.host.Entity || slices.ContainsFunc(tr.cfg.Operators, func(p string) bool { return sign.MatchFrom(p, o.From) }) {
		if run.Remote(o.To) {
			p, err := tr.remote(o.To)
			if err == nil {
				p.Close()
			}
			return err
		}
		return nil
	}
	return envelope.Errorf(envelope.CodeDenied, "%s is not an operator, and may not transfer runs to other platforms", clip.Text(o.From, 128))
}

// captureAfter captures the run as it stands if its handler has not stopped within
// wait: a running tool call is transferred with it, and settled at the target as after
// a crash.
func (r *Run) captureAfter(wait time.Duration) {
	l := r.lane
	l.work.Go(func() { // beside the handler
		if sleep(l.ctx, wait) != nil {
			return
		}
		r.mu.Lock()
		if r.end != nil {
			r.mu.Unlock()
			return
		}
		err := r.write(l.ctx, func(c *state.Checkpoint) error {
			if err := r.applyStaged(c); err != nil {
				return err
			}
			if !run.CaptureNow(c) {
				return errUnchanged
			}
			return r.captured(c)
		})
		if err == nil {
			r.parked = aaif.RunMigrating
			r.stop(ErrParked)
		}
		r.mu.Unlock()
		if err == nil {
			l.releaseParked(r, ErrParked)
		} else if !errors.Is(err, ErrLost) && !errors.Is(err, errUnchanged) {
			l.host.log.Warn("run not captured", "run", r.id.Run, "err", err)
		}
	})
}

// forwardToPlatform forwards an order to the platform that runs the run.
func (tr *transfers) forwardToPlatform(ctx context.Context, c *state.Checkpoint, o *order) (out outcome) {
	out.found, out.status = true, string(c.Doc.Status)
	m := c.Mesh.Migration
	fail := func(err error) outcome {
		out.refused = envelope.Errorf(envelope.CodeUnavailable, "the run is with %s, which cannot be asked for now: %w", clip.Text(m.Target, 128), err)
		return out
	}
	if m.To == intents.MigrateFile {
		out.refused = envelope.Errorf(envelope.CodeDenied, "the run is with %s", clip.Text(m.Target, 128))
		return out
	}
	if o.Intent == intents.TaskMigrate {
		out.refused = envelope.Errorf(envelope.CodeDenied, "the run is with %s: from there it can only be moved by that platform", clip.Text(m.Target, 128))
		return out
	}
	p, err := tr.remote(m.To)
	if err != nil {
		return fail(err)
	}
	defer p.Close()
	there := *o // names the run by its own id, which is the same there
	there.ID, there.Corr, there.Run = "", "", c.Doc.RunID
	there.To, there.Platform, there.WaitMS, there.Abort = "", "", 0, false
	e := envelope.New(envelope.TypeTask, tr.host.Entity, tr.host.Entity, o.Intent, wire.MustJSON(there.Order))
	e.Priority = envelope.PriorityUrgent
	if err := p.signer.Sign(e); err != nil {
		return fail(err)
	}
	raw, err := e.AppendJSON(nil)
	if err != nil {
		return fail(err)
	}
	request, err := p.request(m, handoff.ActionCommand)
	if err != nil {
		return fail(err)
	}
	answer, err := p.Command(ctx, m.ID, request, raw)
	if err != nil {
		return fail(err)
	}
	reply, err := envelope.ParseLimits(answer, tr.host.node.limits)
	if err == nil && (reply.ReplyTo != e.ID || reply.From != e.To || !reply.Type.Terminal()) {
		err = errors.New("the reply does not answer this command")
	}
	if err != nil {
		return fail(fmt.Errorf("its answer: %w", err))
	}
	if reply.Type == envelope.TypeError {
		// Make a new error, with a known code and a clipped copy of the peer's message.
		said := envelope.ErrorOf(reply)
		code := said.Code
		if !code.Known() {
			code = envelope.CodeAgent
		}
		out.refused = envelope.Errorf(code, "%s says: %s", clip.Text(m.Target, 128), clip.Text(said.Message, 128))
		return out
	}
	var result intents.CommandResult
	if err := json.Unmarshal(reply.Payload, &result); err != nil {
		return fail(fmt.Errorf("its answer: %w", err))
	}
	out.done = result.Cancelled || result.Paused || result.Resumed || result.Steered || result.Settled
	out.status, out.runs = clip.Text(result.Status, 128), []string{c.Doc.RunID}
	return out
}
