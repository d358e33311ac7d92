package run

import (
	"fmt"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
)

// A Task is what a run's record keeps of the message that began it.
type Task struct {
	Envelope []byte // JSON
	KeyID    string
	CBOR     bool
	Priority envelope.Priority
	Stream   int           // the number of the last stream envelope of those that delegated the task
	Steering []state.Steer // messages for the next turn, of those that delegated the task
	Stored   time.Time
	Deadline time.Time
}

// Describe writes a task into the record of a run that has none yet.
func Describe(c *state.Checkpoint, t Task, now time.Time) {
	m := &c.Mesh
	m.Task, m.KeyID, m.CBOR, m.Priority, m.Stream = t.Envelope, t.KeyID, t.CBOR, string(t.Priority), t.Stream
	m.Steering = append(slices.Clip(t.Steering), m.Steering...)
	m.StoredAt, m.Deadline, m.StartedAt, m.Due = t.Stored, t.Deadline, now, time.Time{}
}

// Terms are what a claim depends on beside the record and the message.
type Terms struct {
	Now     time.Time
	Version string // of the agent that the worker serves

	Task     Task                   // for a record that has none
	Deadline time.Time              // of a fork, and of a dead letter that is tried again, by the server's clock
	Stored   time.Time              // when the server stored the message
	Limit    func() *envelope.Error // the error of a run whose deadline has passed

	// Refused ends a run that begins, or goes on, with an error: the worker cannot do the
	// task. Ending ends it in any case, before all other reasons.
	Refused, Ending *envelope.Error

	// MaxClaims is how often a run may be claimed without completing a step.
	MaxClaims int
	// MayCommand reports whether the sender of a noted command may command the task.
	MayCommand func(state.Noted) bool
}

// A Claimed is what a claim has made of a run.
type Claimed struct {
	Verdict Verdict // Mine, Ended, Parked or Moving
	// End is why the run ends with this claim, for Ended. The caller makes the reply, and
	// writes it with [End].
	End *envelope.Error
	// Capture says, for Moving, that the caller must capture the run, see [Capture].
	Capture bool

	Began     bool   // the record had no task: this is the run's first claim
	Recovered bool   // from an owner that did not release it
	Restored  bool   // it has progressed before this claim
	Dead      string // why the task becomes a dead letter, "" if it does not
	Was       string // the other version of the agent that it was begun under, "" if there is none
	Refused   []state.Noted
}

// Claim makes the worker that has the message the run's owner, after [Judge] said Mine or
// Moving. The caller stores the checkpoint before the handler begins. A pending request is carried
// out, unless a tool call is under way, or the run is to leave the mesh and has an answer to read
// first: then it stays pending, and [Step] decides. A move that may leave amid the calls of agents
// does so here: the time that it was to wait went with the owner that was asked for it.
func Claim(c *state.Checkpoint, v Verdict, m Message, t Terms) (out Claimed) {
	k := &c.Mesh
	out.Restored = Progressed(c)
	if v == Moving {
		resumeMove(c, m, t.Now)
		out.Verdict = Moving
		return out
	}
	end := revive(c, m, t, &out)
	k.Epoch++
	k.Claims++
	k.Owner, k.Work, k.Redelivered = m.Worker, m.Seq, m.Redelivered
	k.Step = state.Step{Kind: state.StepClaim, Detail: version(c, t.Version, &out)}
	moveFailed(c, t.Now)
	c.Doc.Status = aaif.RunRunning
	if t.Ending != nil {
		end = t.Ending
	}
	if end == nil && !k.Deadline.IsZero() && !k.Deadline.After(t.Now) {
		end = t.Limit()
	}
	switch want := aaif.RunStatus(k.Pending); {
	case end != nil:
		out.Verdict, out.End = Ended, end
	case want == "" || midCall(c) || held(c):
		out.Verdict = Mine
	default:
		c.Doc.Status, k.Pending, k.Owner, k.Claims = want, "", "", 0
		k.Step = state.Step{Kind: state.StepPause}
		out.Verdict = Parked
		if want == aaif.RunMigrating {
			out.Verdict, out.Capture = Moving, true
		}
	}
	return out
}

// revive brings the record of a run that begins, or goes on, up to date, and returns how
// the run ends if it may not.
func revive(c *state.Checkpoint, m Message, t Terms, out *Claimed) *envelope.Error {
	k := &c.Mesh
	if k.Task == nil {
		out.Began = true
		Describe(c, t.Task, t.Now)
		c.Doc.Status = aaif.RunRunning
		if m.Retried == Yes { // of a dead letter that had no run, or whose record is gone
			k.Commands = append(k.Commands, m.Retry)
		}
		if t.Refused != nil {
			return t.Refused
		}
		return applyNoted(c, t, out)
	}
	if c.Terminal() { // a dead letter that is tried again
		k.Commands = append(k.Commands, m.Retry)
		k.Dead, k.Reply, k.Claims, k.Attempt, k.Ran = "", nil, 0, 0, 0
		c.Doc.Error = nil
		pastCalls(c)
		k.StoredAt, k.Deadline = t.Stored, t.Deadline
	}
	if k.Deadline.IsZero() { // a fork, or a record of an earlier release
		k.Deadline = t.Deadline
	}
	out.Recovered = k.Owner != ""
	if t.Refused != nil {
		return t.Refused
	}
	if k.Claims >= t.MaxClaims {
		out.Dead = fmt.Sprintf("claimed %s without completing a step", Times(k.Claims))
		return envelope.Errorf(envelope.CodeInternal, "the task was begun %s and its worker was lost each time", Times(k.Claims))
	}
	return nil
}

// Times says in words how often something was done.
func Times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// applyNoted applies the commands that came before the task, where their senders may
// command it. It returns how the run ends if one of them is a cancel.
func applyNoted(c *state.Checkpoint, t Terms, out *Claimed) (end *envelope.Error) {
	k := &c.Mesh
	for _, n := range k.Noted {
		if !t.MayCommand(n) || n.Intent == intents.TaskSteer && len(k.Steering) >= MaxSteering || CheckCommandID(n.ID) != nil { // an earlier release may have noted such an id
			out.Refused = append(out.Refused, n)
			continue
		}
		k.Commands = append(k.Commands, n.ID)
		switch n.Intent {
		case intents.TaskCancel:
			end = Cancelled(n.From, n.Reason)
		case intents.TaskPause:
			k.Pending = string(aaif.RunPaused)
		case intents.TaskResume:
			k.Pending = ""
		case intents.TaskSteer:
			k.Steering = append(k.Steering, state.Steer{ID: n.ID, From: n.From, Text: n.Text, At: n.At})
		}
	}
	k.Noted = nil
	return end
}

// Cancelled is the error of a task that was cancelled.
func Cancelled(by, reason string) *envelope.Error {
	text := "cancelled by " + clip.Text(by, 128)
	if reason != "" {
		text += ": " + clip.Text(reason, 128)
	}
	return envelope.Errorf(envelope.CodeCancelled, "%s", text)
}

// version notes the agent's version that the run goes on under, and says so in a few
// words if it is another one than before (AAIF, Agent State, agent_version).
func version(c *state.Checkpoint, is string, out *Claimed) string {
	was := c.Doc.AgentVersion
	c.Doc.AgentVersion = is
	if was == "" || was == is {
		return ""
	}
	out.Was = was
	return "of version " + clip.Text(was, 128) + ", goes on under " + is
}

// Bare reports whether a checkpoint holds nothing but its claim: what a run that ends now
// leaves is its reply alone.
func Bare(c *state.Checkpoint) bool {
	d, m := &c.Doc, &c.Mesh
	return m.Epoch == 1 && m.Claims == 1 && m.Task != nil && !Progressed(c) && m.Stream == 0 && m.Told == "" && m.Pending == "" && m.Usage == state.Usage{} && m.Turns == 0 &&
		len(m.Notes)+len(m.Commands)+len(m.Noted)+len(m.Steering)+len(m.Waits)+len(m.Plan)+len(m.More) == 0 && m.Parent == nil && m.Migration == nil && m.Handed == nil &&
		len(d.MemorySnapshot)+len(d.PendingToolCalls)+len(d.SubagentStates) == 0 && d.ApprovalRequest == nil
}

// Progressed reports whether a checkpoint holds more than claims.
func Progressed(c *state.Checkpoint) bool {
	return Worked(c) || c.Mesh.Attempt > 0 || c.Mesh.Step.Kind != state.StepClaim && c.Mesh.Epoch > 0
}

// Worked reports whether a checkpoint holds work of a handler. A run that was only paused, commanded
// or retried has [Progressed], but its handler may have refused the task, or never have begun.
func Worked(c *state.Checkpoint) bool {
	d, m := &c.Doc, &c.Mesh
	return len(d.Conversation) > 0 || len(d.Variables) > 0 || d.PipelinePosition != nil || d.Iteration != "" && d.Iteration.Int64() > 0 ||
		len(m.Loop)+len(m.Calls)+len(m.Effects)+len(m.Waits)+len(m.Plan) > 0
}
