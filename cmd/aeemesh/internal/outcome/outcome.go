package outcome

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// Exit statuses.
const (
	OK        = 0
	Failed    = 1 // the work was not done, or a check found something
	Usage     = 2 // the command line is wrong
	NotThere  = 3 // the named thing does not exist, or has no worker that answers
	NotWanted = 4 // the server, the agent or the current state does not permit it; nothing was done
	Late      = 5 // it timed out; the work may continue
)

// Codes of this program, beside those of the mesh ([envelope.Codes]).
const (
	CodeFailed      envelope.Code = "E_FAILED"
	CodeUsage       envelope.Code = "E_USAGE"
	CodeInterrupted envelope.Code = "E_INTERRUPTED" // by a signal
	CodeConflict    envelope.Code = "E_CONFLICT"    // it exists already, has ended already, has changed meanwhile, or cannot be changed
	CodeFull        envelope.Code = "E_FULL"        // there is no room for it
	CodeUncertain   envelope.Code = "E_UNCERTAIN"   // the server may or may not have stored it
)

// Outcome is the classification of an error.
type Outcome struct {
	Code envelope.Code
	Exit int
}

// known is an error that carries its outcome.
type known struct {
	error
	outcome Outcome
}

func (k *known) Unwrap() error { return k.error }

// NotFound is fmt.Errorf for something that does not exist.
func NotFound(format string, args ...any) error {
	return &known{fmt.Errorf(format, args...), Outcome{envelope.CodeNotFound, NotThere}}
}

// Refused is fmt.Errorf for something that is not permitted.
func Refused(format string, args ...any) error {
	return &known{fmt.Errorf(format, args...), Outcome{envelope.CodeDenied, NotWanted}}
}

// Conflict is fmt.Errorf for something that the current state does not permit.
func Conflict(format string, args ...any) error {
	return &known{fmt.Errorf(format, args...), Outcome{CodeConflict, NotWanted}}
}

// Stopped is fmt.Errorf for a wait that ended because of cause: a signal or a
// timeout.
func Stopped(cause error, format string, args ...any) error {
	o := Outcome{envelope.CodeTimeout, Late}
	if errors.Is(cause, context.Canceled) {
		o = Outcome{CodeInterrupted, Failed}
	}
	return &known{fmt.Errorf(format, args...), o}
}

// Of returns the outcome of err; for nil it is [OK].
func Of(err error) Outcome {
	if err == nil {
		return Outcome{Exit: OK}
	}
	var k *known
	if errors.As(err, &k) {
		return k.outcome
	}
	var problem *envelope.Error
	if errors.As(err, &problem) {
		return Outcome{problem.Code, exitOf(problem.Code)}
	}
	var invalid *envelope.InvalidError
	if errors.As(err, &invalid) {
		return Outcome{envelope.CodeInvalidEnvelope, NotWanted}
	}
	for _, s := range sentinels {
		if slices.ContainsFunc(s.errs, func(e error) bool { return errors.Is(err, e) }) {
			return s.outcome
		}
	}
	return Outcome{CodeFailed, Failed}
}

// exitOf is the exit status of an error envelope. Refusals by the mesh, before
// any work, have their own statuses; an agent's own code is a failure.
func exitOf(code envelope.Code) int {
	switch code {
	case envelope.CodeNotFound, envelope.CodeNoResponders:
		return NotThere
	case envelope.CodeTimeout:
		return Late
	case envelope.CodeInvalidEnvelope, envelope.CodeTooLarge, envelope.CodeEncoding, envelope.CodeWrongRecipient, envelope.CodeUnexpectedType,
		envelope.CodeSigRequired, envelope.CodeSigInvalid, envelope.CodeSigUncheckable, envelope.CodeKeyUnknown, envelope.CodeKeyInvalid, envelope.CodeFromDenied,
		envelope.CodeReplay, envelope.CodeStale, envelope.CodeIntentUnknown, envelope.CodeIntentReserved, envelope.CodeInputSchema, envelope.CodeRequires,
		envelope.CodeBusy, envelope.CodeRateLimited, envelope.CodeDraining, envelope.CodeDenied, envelope.CodeHashMismatch, envelope.CodeTreeLimit, envelope.CodeDeclined:
		return NotWanted
	}
	return Failed
}

// sentinels are checked in this order, because an error may wrap several.
var sentinels = []struct {
	outcome Outcome
	errs    []error
}{
	{Outcome{CodeInterrupted, Failed}, []error{context.Canceled}},
	{Outcome{CodeUncertain, Failed}, []error{jetstream.ErrUncertain, state.ErrUncertain}},
	{Outcome{envelope.CodeUnavailable, Failed}, []error{jetstream.ErrUnavailable, nats.ErrJetStreamNotEnabled, nats.ErrNoServers, nats.ErrConnectionClosed}},
	{Outcome{envelope.CodeDenied, NotWanted}, []error{jetstream.ErrDenied, nats.ErrPermissionViolation, nats.ErrAuthorization, fs.ErrPermission}},
	{Outcome{CodeFull, NotWanted}, []error{jetstream.ErrFull, jetstream.ErrNoRoom}},
	{Outcome{envelope.CodeTooLarge, NotWanted}, []error{envelope.ErrTooLarge, jetstream.ErrTooLarge, nats.ErrMaxPayload}},
	{Outcome{CodeConflict, NotWanted}, []error{
		jetstream.ErrConflict, jetstream.ErrElsewhere, jetstream.ErrExists, jetstream.ErrChanged, state.ErrChanged, registry.ErrChanged, transfer.ErrRunExists, mesh.ErrAnswered,
		mesh.ErrTooLate, mesh.ErrBegun, mesh.ErrEnded, mesh.ErrMoving, mesh.ErrAcceptedThere, fs.ErrExist, sign.ErrRevoked, sign.ErrTaken,
	}},
	{Outcome{envelope.CodeNotFound, NotThere}, []error{jetstream.ErrNotFound, state.ErrNotFound, registry.ErrNotFound, mesh.ErrNoResult, handoff.ErrUnknown, fs.ErrNotExist, exec.ErrNotFound}},
	{Outcome{envelope.CodeTimeout, Late}, []error{context.DeadlineExceeded, nats.ErrTimeout}},
}
