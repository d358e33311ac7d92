package orders

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// Order is a command (of an operator, a sender or the agent) that was received and
// verified.
type Order struct {
	run.Order
	KeyID  string // "" if it is unsigned
	Signed bool
	// Unbound: it does not name its mesh, and applies only to a run that came from
	// another platform.
	Unbound bool

	Problem *envelope.Error // the error that a cancel ends the run with; nil: run.Cancelled
}

// maxCopyOf bounds the id of a command that is passed on, as it is stored with the run.
const maxCopyOf = 128

// New reads the order of a command.
func New(env *envelope.Envelope, keyID string, signed bool) (*Order, error) {
	o := &Order{Order: run.Order{Intent: env.Intent, From: env.From}, KeyID: keyID, Signed: signed}
	if err := wire.ReadJSON(env.Payload, &o.Order); err != nil {
		return nil, fault.Misfit(err)
	}
	if len(o.CopyOf) > maxCopyOf {
		return nil, envelope.Errorf(envelope.CodeTooLarge, "copy_of has %d bytes, the limit is %d", len(o.CopyOf), maxCopyOf)
	}
	o.Envelope = cmp.Or(o.CopyOf, env.ID)
	if err := run.CheckCommandID(o.Envelope); err != nil {
		return nil, err
	}
	if len(o.Text) > run.MaxSteerText {
		return nil, envelope.Errorf(envelope.CodeTooLarge, "the text has %d bytes, the limit is %d", len(o.Text), run.MaxSteerText)
	}
	return o, nil
}

// Names reports whether the order names a task, by its id, correlation or run.
func (o *Order) Names(id, corr, run string) bool {
	return o.ID != "" && id == o.ID || o.Corr != "" && corr == o.Corr || o.Run != "" && run == o.Run
}

// NamesRunAlone reports whether the order names exactly one run, by its run id.
func (o *Order) NamesRunAlone() bool { return o.Run != "" && o.ID == "" && o.Corr == "" }

// RunID returns the id of the run that the order names, "" if it names a correlation.
func (o *Order) RunID(entity string) string {
	switch {
	case o.Run != "":
		return o.Run
	case o.ID != "":
		return state.RunID(entity, o.ID)
	}
	return ""
}

// IsOf reports whether the order names the task of a run by its id.
func (o *Order) IsOf(run state.ID) bool {
	return o.ID != "" && state.RunID(run.Entity, o.ID) == run.Run
}

// MayReach reports whether the order is meant for the mesh that has this run; c may be
// nil.
func (o *Order) MayReach(c *state.Checkpoint) bool {
	return !o.Unbound || c != nil && c.Mesh.TransferredHere()
}

// Forwarded returns the command for the agent that the task was delegated to, nil if that agent
// does not get such orders. id is that of its task.
func (o *Order) Forwarded(id string) intents.Command {
	target := intents.Target{ID: id, Durable: true, CopyOf: o.Envelope}
	switch o.Intent {
	case intents.TaskCancel:
		return intents.CancelTask{ID: id, Reason: o.Reason, Durable: true}
	case intents.TaskPause:
		return intents.PauseTask{Target: target, Reason: o.Reason}
	case intents.TaskResume:
		return intents.ResumeTask{Target: target, Reason: o.Reason}
	case intents.TaskSteer:
		return intents.SteerTask{Target: target, Text: o.Text}
	}
	return nil
}

// An Outcome is the result of an order; its zero value means that no worker has applied
// it.
type Outcome struct {
	Found   bool // the task exists, and the sender may command it
	Silent  bool // another worker answers
	Between bool // the run is this worker's, which is about to begin or to release it
	Later   bool // the run itself cannot obey yet, as Refused says: the order is to come again
	Done    bool
	Status  string
	Runs    []string
	Refused *envelope.Error
}

// Did records that the order was applied; run may be "".
func (out *Outcome) Did(run, status string) {
	out.Found, out.Done, out.Status = true, true, status
	if run != "" {
		out.Runs = append(out.Runs, run)
	}
}

// After returns the outcome of an order that was applied twice. It includes what the first
// application found and did.
func (out Outcome) After(first Outcome) Outcome {
	out.Found, out.Done, out.Status = out.Found || first.Found, out.Done || first.Done, cmp.Or(out.Status, first.Status)
	for _, id := range first.Runs {
		if !slices.Contains(out.Runs, id) {
			out.Runs = append(out.Runs, id)
		}
	}
	return out
}

// Answered takes over the result of the agent or the platform that the order was forwarded to.
func (out *Outcome) Answered(result intents.CommandResult) {
	out.Done = result.Cancelled || result.Paused || result.Resumed || result.Steered || result.Settled
	out.Runs = result.Runs
	if result.Status != "" {
		out.Status = result.Status
	}
}

// Result returns the payload that answers an order. Of the members cancelled, paused and
// so on it sets the one that belongs to the order's intent.
func (o *Order) Result(out Outcome) json.RawMessage {
	word := map[string]string{
		intents.TaskCancel: "cancelled", intents.TaskPause: "paused", intents.TaskResume: "resumed",
		intents.TaskSteer: "steered", intents.TaskSettle: "settled", intents.TaskMigrate: "migrating",
	}[o.Intent]
	members := map[string]any{word: out.Done}
	if len(out.Runs) > 0 {
		members["runs"] = out.Runs
	}
	if out.Status != "" {
		members["status"] = out.Status
	}
	return wire.MustJSON(members)
}

// NoSuchRun refuses an order for a run that does not exist.
func NoSuchRun() *envelope.Error {
	return envelope.Errorf(envelope.CodeNotFound, "there is no such run")
}

// Unbound refuses an order that does not name its mesh.
func Unbound() *envelope.Error {
	return envelope.Errorf(envelope.CodeRequires, "a signed command must name its mesh here (requires.mesh)")
}

// MayNot refuses an order whose sender may not command the task.
func (o *Order) MayNot() *envelope.Error {
	return envelope.Errorf(envelope.CodeDenied, "%s may not command this task", clip.Text(o.From, 128))
}
