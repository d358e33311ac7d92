package run

import (
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
)

// Capture stops a run for its transfer: the record gets phase captured. worker owns the run until
// the target has claimed it. id is the transfer's id, unless a request has set one.
func Capture(c *state.Checkpoint, worker, id string, now time.Time) {
	m := c.Mesh.Migration
	if m == nil { // parked by the handler itself
		m = &state.Migration{ID: id, To: intents.MigrateFile}
		c.Mesh.Migration = m
	}
	m.Phase, m.Since, m.Source = state.PhaseCaptured, now, worker
	if m.Status == "" || m.Status == aaif.RunMigrating {
		m.Status = aaif.RunRunning
	}
	c.Doc.Status = aaif.RunMigrating
	c.Mesh.Owner = worker
	c.Mesh.Step = moveStep(m)
}

// moveStep is the step that says which phase a move has reached.
func moveStep(m *state.Migration) state.Step {
	return state.Step{Kind: state.StepMigrate, Name: string(m.Phase), Detail: "to " + clip.Text(m.To, 128)}
}

// CaptureNow reports whether a run that has not stopped for a pending move may be
// captured as it stands, and withdraws the request: a tool call that is under way goes
// along, and is settled at the target as after a crash. A run that needs an answer of this mesh is
// not captured to leave it. Calls of other agents do not keep it from another platform: they are
// cancelled when that has accepted it. For a file no worker does that.
func CaptureNow(c *state.Checkpoint) bool {
	if c.Mesh.Pending != string(aaif.RunMigrating) || Leaving(c) && (needed(c) != nil || called(c) != nil && !Remote(c.Mesh.Migration.To)) {
		return false
	}
	c.Mesh.Pending = ""
	return true
}

// resumeMove takes a run over that is to be moved, or whose replies are to be relayed.
func resumeMove(c *state.Checkpoint, m Message, now time.Time) {
	k := &c.Mesh
	k.Epoch++
	k.Owner, k.Work, k.Redelivered = m.Worker, m.Seq, m.Redelivered
	if g := k.Migration; g.Phase == state.PhaseAsked {
		g.Phase, g.Since, g.Source = state.PhaseCaptured, now, m.Worker
	}
	k.Step = moveStep(k.Migration)
}

// moveFailed notes in a run that goes on here that its move has failed.
func moveFailed(c *state.Checkpoint, now time.Time) {
	m := c.Mesh.Migration
	if m == nil || m.Phase != state.PhaseCaptured && m.Phase != state.PhaseAsked || c.Mesh.Pending != "" {
		return
	}
	abort(c, now, "the worker that moved it was lost")
}

func abort(c *state.Checkpoint, now time.Time, why string) {
	m := c.Mesh.Migration
	m.Phase, m.Since, m.Detail = state.PhaseAborted, now, why
}

// Advance writes the next phase of a move.
func Advance(c *state.Checkpoint, phase state.Phase, now time.Time) {
	m := c.Mesh.Migration
	m.Phase, m.Since, m.Detail = phase, now, ""
	c.Mesh.Step = moveStep(m)
}

// A NextMove is what is to be done with a run that stands still.
type NextMove int

// The next moves.
const (
	MoveToFile   NextMove = iota // nothing: a person exports it
	MoveDecide                   // ask the target for its verdict
	MoveRelay                    // relay the target's replies
	MoveToRemote                 // send it to another platform
	MoveToWorker                 // offer it to another worker
)

// Next says what is to be done next to move a run.
func Next(m *state.Migration) NextMove {
	switch {
	case m.To == intents.MigrateFile:
		return MoveToFile
	case m.Phase == state.PhaseCommitted:
		return MoveDecide
	case m.Phase == state.PhaseRelaying:
		return MoveRelay
	case Remote(m.To):
		return MoveToRemote
	}
	return MoveToWorker
}

// Back makes a run this mesh's again after a move that failed: it goes on, or waits, with
// the status that it had before. owner keeps it if it goes on; "" leaves it to any worker.
// It reports whether it goes on; then a run without an owner needs a message.
func Back(c *state.Checkpoint, owner string, now time.Time, why string) (runs bool) {
	m := &c.Mesh
	abort(c, now, why)
	m.Epoch++
	c.Doc.Status, m.Owner = c.After(), owner
	runs = !state.Parked(c.Doc.Status)
	if !runs || owner == "" {
		m.Owner, m.Work, m.Redelivered = "", 0, 0
	}
	if owner == "" {
		m.Claims = 0
	}
	return runs
}

// Accept makes worker, which another one has offered a captured run, its owner. seq is
// the sequence of the message that carries the run.
func Accept(c *state.Checkpoint, worker string, seq uint64, now time.Time) {
	m := &c.Mesh
	m.Epoch++
	m.Claims = 1
	m.Owner, m.Work = worker, seq
	m.Migration.Phase, m.Migration.Target, m.Migration.Since, m.Migration.Key = state.PhaseMoved, worker, now, ""
	m.Step = state.Step{Kind: state.StepClaim, Name: string(state.PhaseMoved), Detail: "from " + clip.Text(m.Migration.Source, 128)}
	c.Doc.Status = aaif.RunRunning
}

// ToWorker reports whether an order moves a run to one worker, by its instance id.
func ToWorker(o *Order) bool {
	return o.Intent == intents.TaskMigrate && !o.Abort && o.To != intents.MigrateAny && !outOfMesh(o.To)
}

// Offered reports whether a run stands still, captured, so that it can be offered.
func Offered(c *state.Checkpoint) bool {
	m := c.Mesh.Migration
	return m != nil && m.Phase == state.PhaseCaptured && c.Doc.Status == aaif.RunMigrating
}

// arrives reports whether a run is on its way here from another platform: its record is here, and
// must stay as it is until the receiver, which has not accepted the run yet, starts or deletes it.
func arrives(c *state.Checkpoint) bool {
	m := c.Mesh.Migration
	return c.Doc.Status == aaif.RunMigrating && m != nil && m.Phase == state.PhaseStaged
}

// An ExportState says whether a run has stopped for its export.
type ExportState int

// The states of an export.
const (
	Running   ExportState = iota // it has not stopped yet
	Stopped                      // it has stopped, for a file
	Elsewhere                    // it is being moved to another destination
	Finished                     // it has ended
)

// ExportStateOf returns whether a run has stopped for its export.
func ExportStateOf(c *state.Checkpoint) ExportState {
	switch m := c.Mesh.Migration; {
	case c.Terminal():
		return Finished
	case c.Doc.Status != aaif.RunMigrating:
		return Running
	case m.To != intents.MigrateFile:
		return Elsewhere
	case m.Phase == state.PhaseCaptured, m.Phase == state.PhaseCommitted:
		return Stopped
	}
	return Running
}

// Exported reports whether a run has stopped for a file, or was exported as one.
func Exported(c *state.Checkpoint) bool {
	m := c.Mesh.Migration
	return c.Doc.Status == aaif.RunMigrating && m != nil && m.To == intents.MigrateFile
}

// ErrThere refuses a move to the worker that has the run.
var ErrThere = envelope.Errorf(envelope.CodeDenied, "the run is there already")

// commandMove applies an order to move a run.
func commandMove(c *state.Checkpoint, o *Order, at Position, now time.Time) (Commanded, error) {
	m := &c.Mesh
	was := c.Doc.Status
	if was == aaif.RunMigrating {
		if g := m.Migration; g != nil && g.To == o.To && g.Target == o.Platform {
			return Commanded{Do: Already, Status: string(was)}, nil
		}
		return Commanded{}, envelope.Errorf(envelope.CodeDenied, "the run is being moved already, to %s", clip.Text(m.Migration.To, 128))
	}
	if at == Here && o.To == m.Owner {
		return Commanded{}, ErrThere
	}
	g, again := m.Migration, movePending(c)
	if again && (g.To != o.To || g.Target != o.Platform) {
		return Commanded{}, envelope.Errorf(envelope.CodeDenied, "the run is to be moved to %s already, as %s has asked: take that back first", clip.Text(g.To, 128), clip.Text(g.By, 128))
	}
	if outOfMesh(o.To) && state.Parked(was) {
		if err := mustStay(c, o); err != nil {
			return Commanded{}, err
		}
	}
	if o.Absent != nil {
		return Commanded{}, o.Absent
	}
	paused := pausePending(c)
	if !again { // a first order may say how long to wait for tools
		c.Mesh.Migration = &state.Migration{ID: o.MoveID, Phase: state.PhaseAsked, To: o.To, Target: o.Platform, By: o.From, Since: now}
	}
	c.Mesh.Migration.AmidCalls = o.WaitMS > 0 && Remote(o.To)
	c.Mesh.Step = moveStep(c.Mesh.Migration)
	c.Mesh.Step.Detail += ", " + state.AskedBy + o.Who()
	if !state.Parked(was) {
		return Commanded{Do: Applied, Status: requestMove(c, paused), Asked: true}, nil
	}
	m.Migration.Status = was
	switch {
	case Remote(o.To):
		c.Doc.Status, m.Owner, m.Work, m.Redelivered = aaif.RunMigrating, "", 0, 0
		m.Epoch++
		return Commanded{Do: Applied, Status: string(c.Doc.Status), Requeue: true}, nil
	case o.To == intents.MigrateFile:
		c.Doc.Status = aaif.RunMigrating
		m.Migration.Phase = state.PhaseCaptured
	}
	// Within the mesh it goes there when it is resumed.
	return Commanded{Do: Applied, Status: string(c.Doc.Status)}, nil
}

// mustStay says why a parked run cannot leave the mesh as the order says; nil if it can. An order that
// says how long to wait for tool calls lets a run go to another platform amid a call of an agent, as
// [CaptureNow] does.
func mustStay(c *state.Checkpoint, o *Order) error {
	w, call := needed(c), called(c)
	paused := c.Doc.Status == aaif.RunPaused // it reads an answer, which may be there, only when it goes on
	var who string
	switch {
	case w != nil:
		who = clip.Text(w.Entity, 128)
	case call == nil || o.WaitMS > 0 && Remote(o.To):
		return nil
	default:
		who = clip.Text(call.To, 128)
	}
	switch {
	case paused && w == nil:
		return envelope.Errorf(envelope.CodeDenied, "the run is paused amid a call of %s, whose answer comes to this mesh: resume it first, it can leave the mesh when it has read that", who)
	case paused:
		return envelope.Errorf(envelope.CodeDenied, "the run is paused, and then reads the answer of %s, which comes to this mesh: resume it first, it can leave the mesh after that", who)
	case w == nil || w.Later: // so it is with one that waits for an approval
		return envelope.Errorf(envelope.CodeDenied, "the run waits for an approval, and then reads the answer of %s, which comes to this mesh: it can leave the mesh after that", who)
	}
	return envelope.Errorf(envelope.CodeDenied, "the run waits for %s, whose answer comes to this mesh: it can leave the mesh when that has arrived", who)
}

// commandAbort applies an order not to move a run.
func commandAbort(c *state.Checkpoint, o *Order, now time.Time) (out Commanded, err error) {
	m := &c.Mesh
	moving := c.Doc.Status == aaif.RunMigrating
	if m.Migration == nil || !moving && m.Migration.Phase != state.PhaseAsked {
		return out, envelope.Errorf(envelope.CodeNotFound, "the run is not being moved")
	}
	if m.Migration.Away() {
		return out, envelope.Errorf(envelope.CodeDenied, "the run is with %s now: only that platform's answer brings it back", clip.Text(m.Migration.Target, 128))
	}
	why := "by " + o.Who()
	if moving {
		out.Requeue = Back(c, "", now, why)
	}
	withdrawMove(c)
	abort(c, now, why)
	m.Step = state.Step{Kind: state.StepMigrate, Name: string(state.PhaseAborted), Detail: why}
	out.Do, out.Status = Applied, string(c.Doc.Status)
	return out, nil
}
