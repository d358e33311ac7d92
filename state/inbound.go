package state

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Bounds of what another platform says of a run.
const (
	maxInboundEpoch = 1 << 40
	maxInboundCount = math.MaxInt32
	// maxInboundLife is how long a run may go on from now, whatever its deadline
	// was: as long as runs are kept.
	maxInboundLife = 30 * 24 * time.Hour
)

// Inbound makes of a checkpoint that another platform has written what this mesh
// takes over of it; it is the other half of [Checkpoint.Outbound]. now is the time
// by the clock of this mesh: times of the checkpoint are moved as its clock differs.
//
// The platform vouches for the run itself: its task, conversation, variables, plan
// and ledger, and what it has used. It has no say in what others do here. So what
// would send something in the agent's name, look for the answers of others, or name
// entities of this mesh is left out: Calls, Waits and WakeAt, Handed, Noted, who
// was chosen for a step of the Plan, and members that this release does not know.
// So is what belongs to an owner: Owner, Work, Claims, Trail, Reply, Dead, and Want but
// for a pause.
//
// It fails with ErrInvalid where the run cannot be taken over: a count is negative,
// or a tool call is open under the idempotency key of another run, so that to
// repeat it would be to ask for that one's outcome.
func (c *Checkpoint) Inbound(now time.Time) error {
	m := &c.Mesh
	if err := m.checkInbound(c.Doc.RunID); err != nil {
		return err
	}
	m.Owner, m.Work, m.Claims, m.Trail, m.Reply, m.Dead = "", 0, 0, nil, nil, ""
	if m.Want != string(aaif.RunPaused) {
		m.Want = ""
	}
	if (len(m.Waits) > 0 || !m.WakeAt.IsZero()) && len(c.Unknown()) == 0 {
		c.Doc.ApprovalRequest = nil // it is for what is left out
	}
	m.Calls, m.Waits, m.WakeAt, m.Handed, m.Noted, m.More = nil, nil, time.Time{}, nil, nil, nil
	m.Usage.TreeTokens, m.Usage.TreeCostNanoUSD = 0, 0 // of counters that are not here
	m.Plan = withoutChosen(m.Plan)
	shift := time.Duration(0)
	if at := c.At(); !at.IsZero() {
		shift = now.Sub(at)
	}
	move := func(t *time.Time, latest time.Time) {
		if t.IsZero() {
			return
		}
		if *t = t.Add(shift).UTC(); t.After(latest) {
			*t = latest.UTC()
		}
	}
	move(&m.StoredAt, now)
	move(&m.StartedAt, now)
	move(&m.Deadline, now.Add(maxInboundLife))
	return nil
}

// checkInbound reports what of a run of another platform cannot be taken over.
func (m *Mesh) checkInbound(run string) error {
	u := &m.Usage
	for name, n := range map[string]int64{
		"ran_ms": int64(m.Ran), "attempt": int64(m.Attempt), "stream": int64(m.Stream), "turns": int64(m.Turns),
		"input_tokens": u.InputTokens, "output_tokens": u.OutputTokens, "model_calls": u.ModelCalls, "tool_calls": u.ToolCalls,
		"cost_nano_usd": u.CostNanoUSD, "unpriced_calls": u.UnpricedCalls, "estimated_tokens": u.EstimatedTokens, "estimated_nano_usd": u.EstimatedNanoUSD,
	} {
		if n < 0 {
			return invalid("%s: %s is %d", Extension, name, n)
		}
	}
	if m.Epoch > maxInboundEpoch || m.Attempt > maxInboundCount || m.Stream > maxInboundCount || m.Turns > maxInboundCount {
		return invalid("%s: a count is beyond all that a run comes to", Extension)
	}
	for _, e := range m.Effects {
		if e.Tries < 0 {
			return invalid("%s: call %s was begun %d times", Extension, clip.Text(e.ID, 80), e.Tries)
		}
		if !e.Status.Final() && !strings.HasPrefix(e.Key, run+".") {
			return invalid("call %s of %s is open under the idempotency key of another run (%s): it must end where it was begun", clip.Text(e.ID, 80), clip.Text(e.Tool, 80), clip.Text(e.Key, 80))
		}
	}
	return nil
}

// withoutChosen is a plan without the member chosen: which entities package
// orchestrate has found for its members. They were those of another mesh, and a run
// that comes from there says nothing about whom the agent asks here.
func withoutChosen(plan json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(plan, &members) != nil {
		return plan // none, or one that its package refuses
	}
	for name := range members {
		if strings.EqualFold(name, "chosen") { // as encoding/json reads it
			delete(members, name)
		}
	}
	out, err := json.Marshal(members)
	if err != nil {
		return nil
	}
	return out
}

// InboundStatus is what a run that came with a checkpoint goes on with, once
// [Checkpoint.Inbound] was called: [Checkpoint.After], as far as a platform may say so.
// It waits only for what somebody here can end.
func (c *Checkpoint) InboundStatus() aaif.RunStatus {
	switch s := c.After(); s {
	case aaif.RunPaused, aaif.RunAwaitingApproval:
		return s
	}
	return aaif.RunRunning
}

// AdoptedTask is the id of the task of a run that another platform began, and that
// was no task of a mesh: the UUID version 5 of "<entity> <run id>" in the namespace
// b0a1f3a6-7d52-4d0e-8a37-92c5e4b1680f. So the run and its task name one another, as
// those of every run do, and none comes under the id of somebody else's task.
func AdoptedTask(entity, run string) string { return nameUUID(adoptedNamespace, entity+" "+run) }

// CheckNames reports whether a run that came from another platform is that of its
// task, and of no other: else its replies would be those to another task.
func (c *Checkpoint) CheckNames() error {
	m := &c.Mesh
	if c.Doc.RunID != RunID(m.Entity, m.TaskID) && m.TaskID != AdoptedTask(m.Entity, c.Doc.RunID) {
		return fmt.Errorf("%w: run %s is not that of task %s", ErrInvalid, clip.Text(c.Doc.RunID, 80), clip.Text(m.TaskID, 80))
	}
	return nil
}
