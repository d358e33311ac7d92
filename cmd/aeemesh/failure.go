package main

import (
	"encoding/json"
	"errors"

	"github.com/aeemesh/aeemesh/envelope"
)

// failure is the member "error" that a failing command prints with --json. It
// is a contract, documented in docs/cli.md.
type failure struct {
	Code      envelope.Code `json:"code"`
	Message   string        `json:"message"`
	Hint      string        `json:"hint,omitempty"`
	Retryable bool          `json:"retryable,omitempty"`
	BackoffMS int64         `json:"backoff_ms,omitempty"`
}

// detailed is an error with further members beside "error" in JSON output.
type detailed struct {
	error
	members map[string]any
}

func (d *detailed) Unwrap() error { return d.error }

// withMember adds a member to the JSON that is printed when err ends the
// command.
func withMember(err error, name string, value any) error {
	return &detailed{err, map[string]any{name: value}}
}

// withReply adds the error envelope that a peer has sent.
func withReply(err error, reply *envelope.Envelope) error {
	if reply == nil {
		return err
	}
	raw, encodeErr := reply.AppendJSON(nil)
	if encodeErr != nil {
		return errors.Join(err, encodeErr)
	}
	return withMember(err, "envelope", json.RawMessage(raw))
}

// saidError replaces the text of an error.
type saidError struct {
	text  string
	cause error
}

func (e *saidError) Error() string { return e.text }
func (e *saidError) Unwrap() error { return e.cause }

// remote describes an error of a peer or of the mesh without its hidden cause.
func remote(e *envelope.Error) error {
	return hinted(&saidError{string(e.Code) + ": " + e.Message, e}, "%s", hintForCode(e))
}
