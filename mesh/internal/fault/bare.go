package fault

import (
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Public returns the part of an error that may be published. Details and evidence
// are left out: only the sender gets them.
func Public(e *envelope.Error) *envelope.Error {
	return &envelope.Error{Code: e.Code, Message: e.Message, Retryable: e.Retryable, BackoffMS: e.BackoffMS}
}

// Unsendable reports whether an error is about the envelope, which cannot be sent, and
// not about the connection.
func Unsendable(err error) bool {
	return err != nil && (errors.Is(err, envelope.ErrNumber) || errors.Is(err, nats.ErrMaxPayload) || IsCode(ForPeer(err), envelope.CodeOutputSchema) || IsCode(ForPeer(err), envelope.CodeTooLarge))
}

// Bare strips details and evidence and truncates code and message, so that the error
// always fits a message.
func Bare(e *envelope.Error) *envelope.Error {
	c := Public(e)
	c.Code, c.Message = envelope.Code(clip.Text(string(c.Code), 128)), clip.Text(c.Message, maxBare)
	return c
}

// maxBare bounds, in bytes, the message of a bare error.
const maxBare = 4 << 10

// Output converts an error in encoding an answer to E_OUTPUT_SCHEMA: the agent made
// the invalid envelope, not the sender.
func Output(err error) error {
	if errors.Is(err, envelope.ErrNumber) {
		return envelope.Errorf(envelope.CodeOutputSchema, "the agent's answer has a number that a double cannot represent, so it cannot be signed or encoded").WithCause(err)
	}
	return envelope.Errorf(envelope.CodeOutputSchema, "the agent's answer does not make a valid envelope: %s", ForPeer(err).Message).WithCause(err)
}
