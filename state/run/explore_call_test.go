package run_test

import (
	"encoding/json"
	"strconv"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// calls are a tool call that the run's first step makes, whose outcome a person states if its
// worker is lost, and an approval that the run waits for before its last step.
type calls struct {
	tool, asks bool
	settles    int // how often a person lets the call be made again

	made     int // how often the call was begun
	repeats  int // how often a person let it be made again
	approved int // how often a command let a waiting run go on
}

// callMoves are what persons do.
func (w *world) callMoves(add func(string, func(*world) bool)) {
	if !w.calls.tool {
		return
	}
	settle := func(n *world, outcome intents.Outcome) bool {
		if n.rec == nil {
			return false
		}
		return n.order(run.Order{Envelope: "settle." + strconv.Itoa(len(n.rec.Mesh.Commands)), Intent: intents.TaskSettle, Outcome: outcome}, false)
	}
	add("settle the call as done", func(n *world) bool { return settle(n, state.SettleDone) })
	if w.calls.settles > 0 {
		add("settle the call as one to repeat", func(n *world) bool {
			n.calls.settles--
			n.calls.repeats++
			return settle(n, state.SettleRepeat)
		})
	}
}

// handles makes the step of a handler that makes a call, or waits for an approval, and
// reports whether there was one to make.
func (w *world) handles(x *workerAt, c *state.Checkpoint) bool {
	m := &c.Mesh
	switch n := steps(c); {
	case w.calls.tool && n == 0:
		w.call(x, c)
	case w.calls.asks && n == stepsOfRun-1 && m.Loop == nil:
		m.Loop = json.RawMessage(`"asked"`)
		c.Doc.ApprovalRequest = &aaif.ApprovalRequest{}
		step(c, state.StepModel, aaif.RunAwaitingApproval)
	default:
		return false
	}
	return true
}

// call brings the tool call one step on, as agents.Agent does.
func (w *world) call(x *workerAt, c *state.Checkpoint) {
	m := &c.Mesh
	if len(m.Effects) == 0 {
		m.Effects = []state.Effect{{ID: "c1", Key: "k", Status: state.EffectPending}}
	}
	e := &m.Effects[0]
	if w.fault == callsAgain && e.Status == state.EffectInFlight && !x.calling {
		e.Status = state.EffectPending
	}
	switch {
	case e.Status == state.EffectPending:
		e.Status = state.EffectInFlight
		step(c, state.StepIntent, "")
	case e.Status == state.EffectInFlight && x.calling:
		e.Status = state.EffectDone
		c.Doc.Iteration = aaif.Int(1)
		step(c, state.StepReceipt, "")
	case e.Status == state.EffectInFlight, e.Status == state.EffectUnknown: // of a worker that was lost
		e.Status = state.EffectUnknown
		c.Doc.ApprovalRequest = &aaif.ApprovalRequest{}
		step(c, state.StepModel, aaif.RunAwaitingApproval)
	default:
		c.Doc.Iteration = aaif.Int(1)
		step(c, state.StepModel, "")
	}
}

// effect is the status of the run's tool call, and who stated its outcome.
func effect(c *state.Checkpoint) (status state.EffectStatus, by string) {
	if c == nil || len(c.Mesh.Effects) == 0 {
		return "", ""
	}
	return c.Mesh.Effects[0].Status, c.Mesh.Effects[0].SettledBy
}

// brokenCall says what is wrong with what has become of the call, or of the approval.
func brokenCall(from, to *world) string {
	c := &to.calls
	was, by := effect(from.rec)
	is, now := effect(to.rec)
	final := was == state.EffectDone || was == state.EffectFailed
	switch {
	case c.made > 1+c.repeats, final && is == state.EffectInFlight:
		return "a call is made again"
	case final && (is != was || by != now):
		return "an outcome is stated twice"
	case to.rec != nil && to.rec.Mesh.Loop != nil && to.rec.Doc.Status == aaif.RunRunning && c.approved == 0:
		return "a run goes on without its approval"
	}
	return ""
}
