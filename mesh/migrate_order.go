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
	"github.com/aeemesh/aeemesh/state"
)

// mayMove reports whether somebody may send a run where the order says. Within
// the mesh that is whoever may command it; out of the mesh, with all that is in
// it, an operator or the agent itself. A task that was handed on to this agent is
// answered for another one, whose replies no other platform can write.
func (l *lane) mayMove(o *order, t *Task) error {
	if o.intent != intents.TaskMigrate || o.Abort || !remoteTo(o.To) && o.To != intents.MigrateFile {
		return nil
	}
	if h, _, _ := t.readHanded(); h != nil {
		return envelope.Errorf(envelope.CodeDenied, "the task was delegated to this agent, which answers for another one: such a run moves within the mesh only")
	}
	if o.from == l.host.Entity || slices.ContainsFunc(l.cfg.Operators, func(p string) bool { return sign.MatchFrom(p, o.from) }) {
		if remoteTo(o.To) {
			p, err := l.remote(o.To)
			if err == nil {
				p.Close()
			}
			return err
		}
		return nil
	}
	return envelope.Errorf(envelope.CodeDenied, "%s is no operator, and may not send runs to other platforms", clip.Text(o.from, 128))
}

// obeyMove applies an order to move, or not to, to a run that is being worked on.
func (r *Run) obeyMove(c *state.Checkpoint, o *order) (done bool, status string) {
	m := &c.Mesh
	switch {
	case o.Abort && !moveAsked(c):
		return false, string(c.Doc.Status)
	case o.Abort:
		unwishMove(c)
		m.Migration.Phase, m.Migration.Since = state.PhaseAborted, r.lane.clock.now()
		m.Migration.Detail = "by " + o.who()
		m.Step = state.Step{Kind: state.StepMigrate, Name: string(state.PhaseAborted), Detail: "by " + o.who()}
		return true, string(c.Doc.Status)
	}
	paused := pauseWished(c)
	r.lane.askMove(c, o)
	m.Step = state.Step{Kind: state.StepMigrate, Name: string(state.PhaseAsked), Detail: "to " + clip.Text(o.To, 128) + ", " + state.AskedBy + o.who()}
	return true, wishMove(c, paused)
}

// captureAfter captures the run as it stands when its handler has not stopped
// within wait: a tool call that is under way goes along, and is settled at the
// target as after a crash.
func (r *Run) captureAfter(wait time.Duration) {
	l := r.lane
	l.work.Go(func() {
		if sleep(l.ctx, wait) != nil {
			return
		}
		r.mu.Lock()
		if r.end != nil || r.cp.Load().Mesh.Want != string(aaif.RunMigrating) {
			r.mu.Unlock()
			return
		}
		err := r.write(l.ctx, func(c *state.Checkpoint) error {
			if err := r.stagedOn(c); err != nil {
				return err
			}
			c.Mesh.Want = ""
			return r.captured(c)
		})
		if err == nil {
			r.parked = aaif.RunMigrating
			r.finish(ErrParked)
		}
		r.mu.Unlock()
		if err == nil {
			l.part(r, ErrParked)
		} else if !errors.Is(err, ErrLost) {
			l.host.log.Warn("run not captured", "run", r.id.Run, "err", err)
		}
	})
}

// moveStored applies an order to move to the record of a run that nobody works
// on. kick says that the run is to be queued.
func (l *lane) moveStored(c *state.Checkpoint, o *order) (status string, kick bool, err error) {
	m := &c.Mesh
	if o.Abort {
		return l.abortStored(c, o)
	}
	if c.Doc.Status == aaif.RunMigrating {
		return "", false, envelope.Errorf(envelope.CodeDenied, "the run is being moved already, to %s", clip.Text(m.Migration.To, 128))
	}
	was := c.Doc.Status
	if who := asked(c); who != "" && (remoteTo(o.To) || o.To == intents.MigrateFile) {
		return "", false, envelope.Errorf(envelope.CodeDenied, "the run waits for %s, whose answer comes to this mesh: it can leave the mesh when that has arrived", clip.Text(who, 128))
	}
	paused := pauseWished(c)
	l.askMove(c, o)
	m.Migration.Status = was
	m.Step = state.Step{Kind: state.StepMigrate, Name: string(state.PhaseAsked), Detail: "to " + clip.Text(o.To, 128) + ", " + state.AskedBy + o.who()}
	switch {
	case !state.Parked(was):
		// It waits in the queue: whoever draws it moves it.
		return wishMove(c, paused), false, nil
	case remoteTo(o.To):
		c.Doc.Status, m.Owner, m.Work = aaif.RunMigrating, "", 0
		m.Epoch++
		return string(c.Doc.Status), true, nil
	case o.To == intents.MigrateFile:
		c.Doc.Status = aaif.RunMigrating
		m.Migration.Phase = state.PhaseCaptured
		return string(c.Doc.Status), false, nil
	}
	// Within the mesh it goes there when it is resumed.
	return string(was), false, nil
}

// abortStored takes a move back.
func (l *lane) abortStored(c *state.Checkpoint, o *order) (status string, kick bool, err error) {
	m := &c.Mesh
	if m.Migration == nil || c.Doc.Status != aaif.RunMigrating && m.Migration.Phase != state.PhaseAsked {
		return "", false, envelope.Errorf(envelope.CodeNotFound, "the run is not being moved")
	}
	if m.Migration.Away() {
		return "", false, envelope.Errorf(envelope.CodeDenied, "the run is with %s now: only that platform's answer brings it back", clip.Text(m.Migration.Target, 128))
	}
	if c.Doc.Status == aaif.RunMigrating {
		c.Doc.Status = c.After()
		kick = !state.Parked(c.Doc.Status)
		m.Epoch++
		m.Owner, m.Work = "", 0
	}
	unwishMove(c)
	m.Migration.Phase, m.Migration.Since, m.Migration.Detail = state.PhaseAborted, l.clock.now(), "by "+o.who()
	m.Step = state.Step{Kind: state.StepMigrate, Name: string(state.PhaseAborted), Detail: "by " + o.who()}
	return string(c.Doc.Status), kick, nil
}

// judgeMoving decides what a message means for a run that stands still to be
// moved.
func (r *Run) judgeMoving(c *state.Checkpoint) verdict {
	switch m := c.Mesh.Migration; {
	case m == nil, m.To == intents.MigrateFile:
		return parked
	case m.Phase == state.PhaseCaptured, m.Phase == state.PhaseAsked && !remoteTo(m.To):
		return runs // its worker was gone before anything was decided
	default:
		return moving
	}
}

// enterMoving takes a run over that is to be moved, or whose replies are to be
// brought back.
func (r *Run) enterMoving(c *state.Checkpoint) {
	m := &c.Mesh
	m.Epoch++
	m.Owner, m.Work = r.lane.host.id, r.hold.Seq
	if m.Migration.Phase == state.PhaseAsked {
		m.Migration.Phase, m.Migration.Since, m.Migration.Source = state.PhaseCaptured, r.lane.clock.now(), r.lane.host.id
	}
	m.Step = state.Step{Kind: state.StepMigrate, Name: string(m.Migration.Phase), Detail: "to " + clip.Text(m.Migration.To, 128)}
	r.ran, r.begun = m.Ran, time.Now()
	r.told.seq, r.told.text = m.Stream, m.Told
}

// backFrom notes in a run that goes on here that its move has failed.
func backFrom(c *state.Checkpoint, now time.Time) {
	m := c.Mesh.Migration
	if m == nil || m.Phase != state.PhaseCaptured && m.Phase != state.PhaseAsked || c.Mesh.Want != "" {
		return
	}
	m.Phase, m.Since, m.Detail = state.PhaseAborted, now, "the worker that moved it was lost"
}

// elsewhere passes an order about a run that another platform has on to it.
func (l *lane) elsewhere(ctx context.Context, c *state.Checkpoint, o *order) (out outcome) {
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
	if o.intent == intents.TaskMigrate {
		out.refused = envelope.Errorf(envelope.CodeDenied, "the run is with %s: from there it can only be moved by that platform", clip.Text(m.Target, 128))
		return out
	}
	p, err := l.remote(m.To)
	if err != nil {
		return fail(err)
	}
	defer p.Close()
	there := *o // names the run by its own id, which is the same there
	there.ID, there.Corr, there.Run = "", "", c.Doc.RunID
	there.To, there.Platform, there.WaitMS, there.Abort = "", "", 0, false
	e := envelope.New(envelope.TypeTask, l.host.Entity, l.host.Entity, o.intent, mustJSON(there))
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
	reply, err := envelope.ParseLimits(answer, l.host.node.limits)
	if err == nil && (reply.ReplyTo != e.ID || reply.From != e.To || !reply.Type.Terminal()) {
		err = errors.New("it answers something else")
	}
	if err != nil {
		return fail(fmt.Errorf("its answer: %w", err))
	}
	if reply.Type == envelope.TypeError {
		// The peer's words, in an error of our own: a code of ours and nothing long.
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
