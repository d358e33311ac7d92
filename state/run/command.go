package run

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
)

// An Order is a command for a run. Its sender was verified, and may command the run.
// The members with a JSON name are the command's payload.
type Order struct {
	Envelope string `json:"-"` // the id of the command's envelope
	Intent   string `json:"-"`
	From     string `json:"-"`
	MoveID   string `json:"-"` // the id of the move that it begins
	// Denied is why the sender may not move the run where the order says; nil if it may.
	Denied error `json:"-"`
	// Unread is the refusal of a message for the run's next turn, if the agent does not read such
	// messages; nil if it does.
	Unread *envelope.Error `json:"-"`
	// Absent is the reason why the run cannot move to the worker that the order names; nil if it
	// can.
	Absent error `json:"-"`

	// CopyOf is the Envelope of the order that this one passes on.
	CopyOf   string          `json:"copy_of,omitempty"`
	ID       string          `json:"id,omitempty"`
	Run      string          `json:"run,omitempty"`
	Corr     string          `json:"corr,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Durable  bool            `json:"durable,omitempty"`
	Text     string          `json:"text,omitempty"`
	Call     string          `json:"call,omitempty"`
	Outcome  intents.Outcome `json:"outcome,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Error    string          `json:"error,omitempty"`
	To       string          `json:"to,omitempty"`
	Platform string          `json:"platform,omitempty"`
	WaitMS   int64           `json:"wait_ms,omitempty"`
	Abort    bool            `json:"abort,omitempty"`
	// Caller is the from that the task must have, "" for any. Cancels have it.
	Caller string `json:"from,omitempty"`
}

// Who says who gave the order and, where that was said, why.
func (o *Order) Who() string {
	if o.Reason == "" {
		return clip.Text(o.From, 128)
	}
	return clip.Text(o.From, 128) + ": " + clip.Text(o.Reason, 128)
}

// A Position says where a run is, seen from the worker that applies a command.
type Position int

// The positions.
const (
	Here   Position = iota // this worker owns it, and its handler is at work
	Stored                 // in its record: if a worker owns it, that one answers
	Silent                 // in its record, and its owner, if it has one, has not answered
)

// A Do says what the worker does after [Command].
type Do int

// What the worker does.
const (
	Nothing    Do = iota // the command does not apply: the run is as it was
	Already              // it was applied before
	Applied              // store the checkpoint
	EndRun               // end the run with [Cancelled]: the command is a cancel
	Note                 // the task has not begun: note the command
	AskOwner             // leave it to the run's owner
	Forward              // send it to the agent that the task was delegated to
	ForwardOut           // send it to the other platform that has the run
)

// A Commanded is what a command has made of a run.
type Commanded struct {
	Do      Do
	Status  string // what its sender is told of the run
	Requeue bool   // the run needs a new message: it goes on, or its reply is to be published
	Asked   bool   // a move is pending now
}

// MaxSteering bounds the messages that may wait for a run's next turn.
const MaxSteering = 64

// MaxSteerText bounds the text of such a message, in bytes.
const MaxSteerText = 32 << 10

// ErrSteered refuses a message beyond [MaxSteering].
var ErrSteered = envelope.Errorf(envelope.CodeBusy, "%d messages wait already for the run's next turn", MaxSteering).WithBackoff(15 * time.Second)

// arrivalBackoff is when a command for a run that is still on its way here may be sent again.
const arrivalBackoff = 5 * time.Second

// Command applies an order to a run at a position. It is the same whether the run is
// under way or parked: a run that cannot stop now has the request pending. A run that another
// platform transfers here obeys no order before it has begun here. An error refuses the order,
// and nothing has changed. Orders to move a run are applied in move.go.
func Command(c *state.Checkpoint, o *Order, at Position, now time.Time) (Commanded, error) {
	m := &c.Mesh
	out := Commanded{Status: string(c.Doc.Status)}
	if err := CheckCommandID(o.Envelope); err != nil {
		return out, err
	}
	switch {
	case m.Task == nil && !c.Terminal():
		out.Do = Note
		return out, nil
	case slices.Contains(m.Commands, o.Envelope):
		out.Do = Already
		if o.Intent == intents.TaskPause || o.Intent == intents.TaskMigrate && !o.Abort {
			out.Status = pendingStatus(c)
		}
		return out, nil
	case c.Terminal():
		if m.Handed != nil {
			out.Do = Forward
		}
		return out, nil
	case o.Denied != nil:
		return out, o.Denied
	case c.Doc.Status == aaif.RunMigrating && m.Migration.Away() && !o.Abort:
		out.Do = ForwardOut
		return out, nil
	case arrives(c):
		return out, envelope.Errorf(envelope.CodeUnavailable, "the run is on its way here from %s, and has not begun here: send the command again later",
			clip.Text(m.Migration.Source, 128)).WithBackoff(arrivalBackoff)
	case owned(c) && at == Stored:
		out.Do = AskOwner
		return out, nil
	}
	out, err := apply(c, o, at, now)
	if err == nil && (out.Do == Applied || out.Do == EndRun) {
		m.Commands = append(m.Commands, o.Envelope)
	}
	return out, err
}

func apply(c *state.Checkpoint, o *Order, at Position, now time.Time) (Commanded, error) {
	m := &c.Mesh
	out := Commanded{Status: string(c.Doc.Status)}
	asked := state.AskedBy + o.Who()
	switch o.Intent {
	case intents.TaskCancel:
		// The message of a parked run may be there still: its worker is about to ack it.
		out.Do, out.Requeue = EndRun, state.Parked(c.Doc.Status)
	case intents.TaskPause:
		switch {
		case c.Doc.Status == aaif.RunPaused:
			out.Do = Already
			return out, nil
		case c.Doc.Status == aaif.RunMigrating:
			return out, nil // its target may be asked
		case c.Doc.Status == aaif.RunAwaitingApproval, owned(c), midCall(c):
			requestPause(c)
			out.Status = "pausing"
		default:
			c.Doc.Status, out.Status = aaif.RunPaused, string(aaif.RunPaused)
		}
		m.Step = state.Step{Kind: state.StepPause, Detail: asked}
		out.Do = Applied
	case intents.TaskResume:
		switch {
		case c.Doc.Status == aaif.RunMigrating:
			return out, nil
		case c.Doc.Status == aaif.RunPaused, approvable(c):
			if c.Doc.Status == aaif.RunAwaitingApproval {
				withdrawPause(c)
			}
			goOn(c)
			out.Requeue = true
		case !withdrawPause(c):
			return out, nil
		}
		m.Step = state.Step{Kind: state.StepResume, Detail: asked}
		out.Do, out.Status = Applied, string(c.Doc.Status)
	case intents.TaskSteer:
		if o.Unread != nil {
			return out, o.Unread
		}
		if len(m.Steering) >= MaxSteering {
			return out, ErrSteered
		}
		m.Steering = append(m.Steering, state.Steer{ID: o.Envelope, From: o.From, Text: o.Text, At: now})
		m.Step = state.Step{Kind: state.StepSteer, Detail: asked}
		out.Do = Applied
	case intents.TaskMigrate:
		if o.Abort {
			return commandAbort(c, o, now)
		}
		return commandMove(c, o, at, now)
	case intents.TaskSettle:
		if calls := stated(c, o); len(calls) > 0 {
			for _, e := range calls {
				if !sameOutcome(e, o) {
					return out, envelope.Errorf(envelope.CodeDenied, "the outcome of call %s was stated already, by %s: it is %s",
						clip.Text(e.ID, 80), clip.Text(e.SettledBy, 128), strings.ReplaceAll(string(e.Status), "_", " "))
				}
			}
			out.Do = Already
			return out, nil
		}
		if at == Here {
			return out, nil // its handler has no call whose outcome is unknown
		}
		left, err := settle(c, o, now)
		if err != nil {
			return out, envelope.Errorf(envelope.CodeNotFound, "%s", err.Error())
		}
		m.Step = state.Step{Kind: state.StepSettle, Name: o.Call, Detail: string(o.Outcome) + ", says " + o.Who()}
		if left == 0 && c.Doc.Status == aaif.RunAwaitingApproval { // a run that moves goes on there, or when it is back
			goOn(c)
			out.Requeue = true
		}
		out.Do, out.Status = Applied, string(c.Doc.Status)
	}
	return out, nil
}

// stated returns the call that an order names, or all calls if it names none, whose outcome a
// person has stated; nil if the order is about a call whose outcome is still unknown.
func stated(c *state.Checkpoint, o *Order) (calls []state.Effect) {
	for _, e := range c.Mesh.Effects {
		switch {
		case o.Call != "" && e.ID != o.Call && e.Key != o.Call:
		case e.Status == state.EffectUnknown:
			return nil
		case e.SettledBy != "":
			calls = append(calls, e)
		}
	}
	return calls
}

// sameOutcome reports whether an order states the outcome that a call has.
func sameOutcome(e state.Effect, o *Order) bool {
	switch o.Outcome {
	case intents.OutcomeDone:
		return e.Status == state.EffectDone && (len(o.Result) == 0 || state.ArgsHash(o.Result) == state.ArgsHash(e.Result))
	case intents.OutcomeFailed:
		return e.Status == state.EffectFailed
	}
	return e.Status == state.EffectPending || e.Status == state.EffectInFlight
}

// settle states the outcome of a call whose outcome is unknown, or of all of those where
// the order names none, and returns how many are left.
func settle(c *state.Checkpoint, o *Order, now time.Time) (left int, err error) {
	calls := []string{o.Call}
	if all := c.Unknown(); o.Call == "" && len(all) > 0 {
		calls = nil
		for _, e := range all {
			calls = append(calls, e.ID)
		}
	}
	why := cmp.Or(o.Error, o.Reason)
	for _, call := range calls {
		if left, err = c.Settle(call, string(o.Outcome), o.Result, why, o.From, now); err != nil {
			return left, err
		}
	}
	return left, nil
}
