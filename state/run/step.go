package run

import (
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// A Stepped is what the end of a step has made of a run.
type Stepped struct {
	Stop bool // the handler stops here: the run is released, or parked
	// Status is the status that the run waits with; "" if it was released, and another
	// worker goes on at once.
	Status aaif.RunStatus
	// Capture says that the caller must capture the run, see [Capture].
	Capture bool
}

// Step ends a step of the run's owner. The handler's own changes are in c. park is the waiting
// status that the handler requests, "" for none; leaving says that the worker stops. A pending
// request is carried out, unless a tool call or a call of another agent is under way. A move out of
// the mesh is given up if the run needs an answer first, see [Stay]; if the worker stops, it is
// carried out where [Claim] would, else the next one decides.
func Step(c *state.Checkpoint, step state.Step, park aaif.RunStatus, leaving bool, now time.Time) (out Stepped, err error) {
	m := &c.Mesh
	if c.Terminal() || state.Parked(c.Doc.Status) {
		return out, fmt.Errorf("status %s is the mesh's to set: return a result, or call Park", c.Doc.Status)
	}
	m.Step, m.Claims = step, 0
	if step.Kind == state.StepHandler {
		m.Told = ""
	}
	calling := midCall(c)
	if c.Doc.Status = aaif.RunRunning; calling {
		c.Doc.Status = aaif.RunAwaitingToolResult
	}
	switch {
	case park != "":
		out.Status = park
	case step.Kind == state.StepIntent || step.Kind == state.StepCall || calling:
	case leaving && held(c):
		out.Stop = true
	default:
		if !leaving && unread(c) {
			Stay(c, now)
		}
		out.Status, out.Stop = aaif.RunStatus(m.Pending), leaving
	}
	if out.Status != "" {
		c.Doc.Status, out.Stop = out.Status, true
		if out.Status != park || park != aaif.RunAwaitingApproval {
			m.Pending = ""
		}
	}
	if out.Stop {
		m.Owner = ""
	}
	out.Capture = out.Status == aaif.RunMigrating
	return out, nil
}

// Release ends the ownership of a run in the middle of a step: the next worker need not
// wait for the lease, and this claim does not count.
func Release(c *state.Checkpoint) {
	c.Mesh.Owner, c.Mesh.Claims = "", max(0, c.Mesh.Claims-1)
}

// Retry commits a failure after which the run is tried again. The caller naks its
// message.
func Retry(c *state.Checkpoint, code envelope.Code, why *aaif.RunError) {
	m := &c.Mesh
	m.Attempt++
	pastCalls(c)
	m.Claims, m.Owner = 0, ""
	m.Step = state.Step{Kind: state.StepRetry, Detail: string(code)}
	c.Doc.Error = why
}

// An Ending is how a run ends.
type Ending struct {
	Reply []byte         // the terminal envelope, JSON
	Error *aaif.RunError // nil: the run is completed
	Dead  string         // why the task becomes a dead letter; "": it does not

	// Target is the other platform at which the run has ended, Stream the number of the
	// last stream envelope from there; "" for a run that ends here.
	Target string
	Stream int

	// Handed delegates the task: another agent replies, and Reply is nil.
	Handed *state.Handed
}

// End makes c the run's last checkpoint. The reply is in it, so that it is the same
// whichever worker publishes it, and however often.
func End(c *state.Checkpoint, e Ending) {
	m := &c.Mesh
	m.Reply, m.Pending, m.Told, m.Dead = e.Reply, "", "", e.Dead
	m.Step = state.Step{Kind: state.StepTerminal}
	c.Doc.Status, c.Doc.Error = aaif.RunCompleted, e.Error
	if e.Error != nil {
		c.Doc.Status = aaif.RunFailed
		m.Step.Detail = e.Error.Code
	}
	switch {
	case e.Handed != nil:
		m.Handed = e.Handed
		m.Step = state.Step{Kind: state.StepHandoff, Name: e.Handed.To, Detail: e.Handed.Reason}
	case e.Target != "":
		m.Stream = e.Stream
		m.Step = state.Step{Kind: state.StepTerminal, Name: string(state.PhaseRelaying), Detail: "at " + e.Target}
	}
}

// ErrorStep returns the pipeline step or the tool in which a run failed (AAIF, Agent
// State, error.step), as far as its last checkpoint tells; "" where it was in neither.
func ErrorStep(c *state.Checkpoint, code envelope.Code) string {
	switch step := c.Mesh.Step; {
	case step.Kind == state.StepTeam, step.Kind == state.StepIntent, step.Kind == state.StepReceipt && code == envelope.CodeTool:
		return step.Name
	case c.Doc.PipelinePosition != nil:
		return c.Doc.PipelinePosition.CurrentStep
	}
	return ""
}

// Abandon gives a run up for its owner, which has died, and reports whether that one
// owned it. Any worker may claim it then; the claim that the owner had counts.
func Abandon(c *state.Checkpoint, owner string) bool {
	m := &c.Mesh
	if m.Owner != owner || !Carried(c.Doc.Status) {
		return false
	}
	m.Owner, m.Work, m.Redelivered = "", 0, 0
	m.Epoch++ // what the owner still writes, should it live, is old
	return true
}
