package fault

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// AfterBegin converts an error of a handler that the task's sender would misread. Some codes
// promise that the task was not begun. In an error from a peer that the handler called,
// they are about that call, but this task has begun.
func AfterBegin(err error) error {
	var e *envelope.Error
	switch {
	case !errors.As(err, &e):
		if !errors.Is(err, nats.ErrNoResponders) {
			return err
		}
		e = envelope.Errorf(envelope.CodeNoResponders, "a service that the agent needs does not answer")
	case e.Code == envelope.CodeNoResponders:
	case e.FromPeer() && (e.Code == envelope.CodeBusy || e.Code == envelope.CodeRateLimited || e.Code == envelope.CodeDraining):
	default:
		return err
	}
	out := envelope.Errorf(envelope.CodeUnavailable, "%s", e.Message).WithCause(err)
	out.BackoffMS = e.BackoffMS
	return out
}

// ForPeer converts an error to the *envelope.Error that a peer may read. No other function
// decides what a peer may read of an error. The order is fixed: an explicit
// envelope.Error first, then known errors, then E_INTERNAL without any detail.
func ForPeer(err error) *envelope.Error {
	var said *envelope.Error
	var bad *envelope.InvalidError
	var large *wire.Oversized
	var payload *intents.ValidationError
	switch {
	case errors.As(err, &said):
		return said
	case errors.As(err, &large):
		return envelope.Errorf(envelope.CodeTooLarge, "%s", large.Error())
	case errors.As(err, &bad):
		return envelope.Errorf(envelope.CodeInvalidEnvelope, "%s", strings.TrimPrefix(bad.Error(), "invalid envelope: ")).WithCause(err)
	case errors.Is(err, envelope.ErrTooLarge):
		return envelope.Errorf(envelope.CodeTooLarge, "%s", err.Error()).WithCause(err)
	case errors.Is(err, envelope.ErrNumber):
		return envelope.Errorf(envelope.CodeInvalidEnvelope, "%s", err.Error()).WithCause(err)
	case errors.As(err, &payload):
		return envelope.Errorf(envelope.CodeInputSchema, "%s", payload.Error()).WithCause(err)
	case errors.Is(err, intents.ErrUnknownIntent):
		return envelope.Errorf(envelope.CodeIntentUnknown, "this agent does not know the intent; aee.capability.list lists those that it knows").WithCause(err)
	case errors.Is(err, jetstream.ErrTooLarge):
		return envelope.Errorf(envelope.CodeTooLarge, "the data to store is larger than a message may be").WithCause(err)
	case jetstream.Away(err): // before the next cases, because it may wrap a timeout or missing responders
		return envelope.Errorf(envelope.CodeUnavailable, "JetStream does not answer for now, or is full").WithCause(err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return envelope.Errorf(envelope.CodeTimeout, "not done by the deadline").WithCause(err)
	case errors.Is(err, context.Canceled):
		return envelope.Errorf(envelope.CodeCancelled, "cancelled").WithCause(err)
	case errors.Is(err, nats.ErrNoResponders):
		return envelope.Errorf(envelope.CodeNoResponders, "no worker answers").WithCause(err)
	case errors.Is(err, nats.ErrMaxPayload):
		return envelope.Errorf(envelope.CodeTooLarge, "the message is larger than the server's max_payload").WithCause(err)
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrConnectionDraining),
		errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrReconnectBufExceeded):
		return envelope.Errorf(envelope.CodeUnavailable, "not connected to NATS").WithCause(err)
	}
	return envelope.AsError(err)
}

// OfReply is [ForPeer] for an error in a received reply. Its message says that the reply is
// refused, not the task.
func OfReply(entity string, err error) *envelope.Error {
	e := *ForPeer(err)
	e.Message = "reply from " + entity + ": " + e.Message
	return &e
}

// IsCode reports whether err has an [*envelope.Error] with this code.
func IsCode(err error, code envelope.Code) bool {
	var e *envelope.Error
	return errors.As(err, &e) && e != nil && e.Code == code
}

// Unusable returns the error for a reply that is not a valid answer to the task.
func Unusable(format string, args ...any) *envelope.Error {
	return envelope.Errorf(envelope.CodeInvalidEnvelope, format, args...)
}

// NoInbox is the error where a task for a person cannot be stored.
var NoInbox = envelope.Errorf(envelope.CodeUnavailable, "there are no inboxes for people here: they need JetStream and stream AEE_HUMAN")
