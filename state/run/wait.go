package run

import (
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
)

// Waits reports whether a run is parked until an answer, or a time: a worker wakes it
// without a person's command.
func Waits(c *state.Checkpoint) bool {
	return c.Doc.Status == aaif.RunAwaitingApproval && c.WakesItself()
}

// needed returns the first wait whose answer the run needs before it may leave the mesh, nil where
// there is none: the answer comes to this mesh, and another platform does not know of it. A person
// may settle a call whose outcome is unknown elsewhere, too.
func needed(c *state.Checkpoint) *state.Wait {
	if len(c.Unknown()) > 0 {
		return nil
	}
	for i := range c.Mesh.Waits {
		if w := &c.Mesh.Waits[i]; w.Open() && ofThisAttempt(c, w.Key, w.TaskID) {
			return w
		}
	}
	return nil
}

// called returns the first call of another agent that keeps the run in the mesh, nil where there is none:
// another platform would make the call again. The answer to a call over the live lane reaches only the
// owner of the run that made it, so such a call keeps no run. A job of this attempt does: its work goes
// on over the durable lane until this mesh cancels it.
func called(c *state.Checkpoint) *state.Call {
	for i := range c.Mesh.Calls {
		call := &c.Mesh.Calls[i]
		void := slices.ContainsFunc(c.Mesh.Waits, func(w state.Wait) bool { return w.Void && w.TaskID == call.ID })
		if !void && (call.Job && !call.Past || !call.Live && ofThisAttempt(c, call.Key, call.ID)) {
			return call
		}
	}
	return nil
}

// unread reports whether a run has an answer to read before it may leave the mesh.
func unread(c *state.Checkpoint) bool { return needed(c) != nil || called(c) != nil }

// held reports whether a pending move out of the mesh waits for an answer that the run is to read first,
// at a worker that does not measure the time that the order said to wait. For the answer of an agent
// it waits only if the order said no time.
func held(c *state.Checkpoint) bool {
	return Leaving(c) && (needed(c) != nil || called(c) != nil && !c.Mesh.Migration.AmidCalls)
}

// approvable reports whether a run is awaiting_approval for nothing but an approval, which
// a resume gives: no call's outcome is unknown, and no answer is to come.
func approvable(c *state.Checkpoint) bool {
	return c.Doc.Status == aaif.RunAwaitingApproval && len(c.Unknown()) == 0 && !Waits(c)
}

// Earliest returns the first time at which a waiting run goes on without an answer, at
// included; zero: never.
func Earliest(c *state.Checkpoint, at time.Time) time.Time {
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	sooner(c.Mesh.Deadline)
	for _, w := range c.Mesh.Waits {
		if w.Wakes() {
			sooner(w.Until)
		}
	}
	return at
}

// Expired reports whether no answer to a task can come in time any more.
func Expired(w state.Wait, now time.Time) bool {
	return !w.Until.IsZero() && !w.Until.Add(ClockSlack).After(now)
}

// Due says why a waiting run goes on now, whatever the answers are; "" if it waits on.
func Due(c *state.Checkpoint, now time.Time) string {
	switch m := &c.Mesh; {
	case pastDeadline(c, now):
		return deadlinePassed
	case !m.WakeAt.IsZero() && !m.WakeAt.After(now):
		return "its time has come"
	}
	return ""
}

const deadlinePassed = "its deadline has passed"

func pastDeadline(c *state.Checkpoint, now time.Time) bool {
	return !c.Mesh.Deadline.IsZero() && !c.Mesh.Deadline.After(now)
}

// Wake lets a parked run go on. The caller queues it.
func Wake(c *state.Checkpoint, why string) {
	goOn(c)
	c.Mesh.WakeAt = time.Time{}
	c.Mesh.Step = state.Step{Kind: state.StepResume, Detail: why}
}

// goOn makes of a parked run one that any worker may claim.
func goOn(c *state.Checkpoint) {
	m := &c.Mesh
	c.Doc.Status, c.Doc.ApprovalRequest = aaif.RunRunning, nil
	m.Owner, m.Work, m.Redelivered = "", 0, 0
	m.Epoch++
	resumePendingMove(c)
}

// A Need is what a run needs that no worker has, and that no message carries.
type Need int

// The needs.
const (
	NeedsNothing Need = iota // it waits for an event
	NeedsNotes               // it has no task yet: only commands are noted
	NeedsQueue               // a message
	NeedsWake                // [Wake] with the reason, and a message
)

// Needs says what a run needs whose message is lost; why is the reason of a wake.
func Needs(c *state.Checkpoint, now time.Time) (n Need, why string) {
	m := &c.Mesh
	switch {
	case c.Terminal():
		return NeedsNothing, ""
	case m.Task == nil:
		return NeedsNotes, ""
	case c.Doc.Status == aaif.RunMigrating:
		if m.Migration == nil || m.Migration.To == "" || m.Migration.To == intents.MigrateFile {
			return NeedsNothing, "" // it stands still until a person decides
		}
		return NeedsQueue, ""
	case !state.Parked(c.Doc.Status):
		return NeedsQueue, ""
	case pastDeadline(c, now):
		return NeedsWake, deadlinePassed // so that a worker claims it, and ends it
	}
	return NeedsNothing, ""
}

// Carried reports whether a run with this status needs a message in the work queue.
func Carried(s aaif.RunStatus) bool {
	return !state.Terminal(s) && (!state.Parked(s) || s == aaif.RunMigrating)
}

// LacksMessage reports whether a run that went on with checkpoint c still lacks its message; now is
// its record.
func LacksMessage(now, c *state.Checkpoint) bool {
	need, _ := Needs(now, time.Time{})
	return need == NeedsQueue && now.Mesh.Epoch == c.Mesh.Epoch && now.Mesh.Owner == "" && now.Mesh.Work == 0
}
