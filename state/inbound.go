package state

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Limits for the data of a run from another platform.
const (
	maxInboundEpoch = 1 << 40
	maxInboundCount = math.MaxInt32
	// maxInboundLife is the longest time that a run may still take, whatever its deadline
	// is, also if it has none: as long as runs are kept.
	maxInboundLife = 30 * 24 * time.Hour
)

// Inbound reduces a checkpoint of another platform to the parts that this mesh accepts; it is the
// counterpart of [Checkpoint.Outbound]. now is the time by this mesh's clock: times in the
// checkpoint are shifted by the difference of the clocks. A run without a deadline gets one.
//
// The other platform vouches for the run itself: its task, conversation, variables, plan and
// ledger, and its usage. It must not control other entities here. So Inbound removes everything
// that would send something in the agent's name, wait for answers of others, or name entities of
// this mesh: Calls, Waits and WakeAt, Handed, Noted and Due, the members chosen for the steps of the Plan,
// and members that this release does not know. It also removes the state of an owner: Owner, Work,
// Redelivered, Claims, Trail, Reply, Dead, and Pending unless it is a pause.
//
// It fails with ErrInvalid if the run cannot be accepted: a count is negative or too
// large, or an open tool call has the idempotency key of another run, so that repeating
// the call would return that run's outcome.
func (c *Checkpoint) Inbound(now time.Time) error {
	m := &c.Mesh
	if err := m.checkInbound(c.Doc.RunID); err != nil {
		return err
	}
	m.Owner, m.Work, m.Redelivered, m.Claims, m.Trail, m.Reply, m.Dead = "", 0, 0, 0, nil, nil, ""
	if m.Pending != string(aaif.RunPaused) {
		m.Pending = ""
	}
	if c.WakesItself() {
		c.Doc.ApprovalRequest = nil // it is about what is removed
	}
	m.Calls, m.Waits, m.WakeAt, m.Handed, m.Noted, m.Due, m.More = nil, nil, time.Time{}, nil, nil, time.Time{}, nil
	m.Usage.TreeTokens, m.Usage.TreeCostNanoUSD = 0, 0 // of counters of the other platform
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
	if m.Deadline.IsZero() {
		m.Deadline = now.Add(m.inboundLife()).UTC()
	}
	return nil
}

// inboundLife returns how long a run without a deadline may take: what its task requires, up to
// maxInboundLife.
func (m *Mesh) inboundLife() time.Duration {
	if task, err := envelope.ParseStored(m.Task); err == nil {
		if have, err := task.Requirements(); err == nil && have.Timeout > 0 {
			return min(have.Timeout, maxInboundLife)
		}
	}
	return maxInboundLife
}

// checkInbound returns an error if the run of another platform cannot be accepted.
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
		if !e.Status.Final() && !ownKey(run, e.Key) {
			return invalid("call %s of %s is open under the idempotency key of another run (%s): it must end where it was begun", clip.Text(e.ID, 80), clip.Text(e.Tool, 80), clip.Text(e.Key, 80))
		}
	}
	return nil
}

// ownKey reports whether an idempotency key belongs to a call of the run, see [EffectKey]. Another
// platform chooses the ids of its runs, so the key of one run may begin with the id of another and
// a dot.
func ownKey(run, key string) bool {
	turn, call, _ := strings.Cut(strings.TrimPrefix(key, run+"."), ".")
	t, errT := strconv.Atoi(turn)
	c, errC := strconv.Atoi(call)
	return errT == nil && errC == nil && key == EffectKey(run, t, c)
}

// withoutChosen returns a plan without the member chosen, the entities that package
// orchestrate has found for the plan's members. They belong to the other mesh, and a run
// that comes from there must not decide which entities the agent sends tasks to here.
func withoutChosen(plan json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(plan, &members) != nil {
		return plan // there is none, or one that package orchestrate refuses
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

// InboundStatus returns the status with which a transferred run continues, after
// [Checkpoint.Inbound]: that of [Checkpoint.After], as far as a platform may decide it.
// The run waits only for events that can happen here.
func (c *Checkpoint) InboundStatus() aaif.RunStatus {
	switch s := c.After(); s {
	case aaif.RunPaused, aaif.RunAwaitingApproval:
		return s
	}
	return aaif.RunRunning
}

// AdoptedTask is the task id of a run that another platform started and that was no task
// of a mesh: the UUID version 5 of "<entity> <run id>" in the namespace
// b0a1f3a6-7d52-4d0e-8a37-92c5e4b1680f. So the run's id and the task's id can be checked
// against each other, as for every run, and no run can use the id of another sender's
// task.
func AdoptedTask(entity, run string) string { return nameUUID(adoptedNamespace, entity+" "+run) }

// CheckNames verifies that the run id of a run from another platform belongs to its task
// id: otherwise its replies would be replies to another task.
func (c *Checkpoint) CheckNames() error {
	m := &c.Mesh
	if c.Doc.RunID != RunID(m.Entity, m.TaskID) && m.TaskID != AdoptedTask(m.Entity, c.Doc.RunID) {
		return fmt.Errorf("%w: run %s is not that of task %s", ErrInvalid, clip.Text(c.Doc.RunID, 80), clip.Text(m.TaskID, 80))
	}
	return nil
}
