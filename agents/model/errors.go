package model

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Kind is a class of failure. Each Kind is a sentinel for errors.Is.
type Kind string

// The kinds. Each says who has to correct the problem, and whether a retry may
// help.
const (
	// ErrUnavailable: the provider could not be reached, failed, or broke off
	// its answer. A retry, or another provider, may help.
	ErrUnavailable Kind = "unavailable"

	// ErrRateLimited: too many requests, or the quota is used up. A retry after
	// Error.RetryAfter, or another provider at once, may help.
	ErrRateLimited Kind = "rate_limited"

	// ErrBadRequest: the request is wrong, or the model does not exist. The
	// author of the agent has to correct it.
	ErrBadRequest Kind = "bad_request"

	// ErrAuth: the credential is missing, wrong, or not allowed to do this. The
	// operator has to correct it.
	ErrAuth Kind = "auth"

	// ErrContextTooLong: the conversation does not fit the model's window.
	// Dropping old turns, or a larger model, helps.
	ErrContextTooLong Kind = "context_too_long"
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{ErrUnavailable, ErrRateLimited, ErrBadRequest, ErrAuth, ErrContextTooLong}
}

var kindTexts = map[Kind]string{
	ErrUnavailable:    "model unavailable",
	ErrRateLimited:    "model rate limited",
	ErrBadRequest:     "model refused the request",
	ErrAuth:           "model refused the credential",
	ErrContextTooLong: "conversation too long for the model",
}

// Error returns the kind in words.
func (k Kind) Error() string { return cmp.Or(kindTexts[k], "model error "+string(k)) }

// Retryable reports whether the same request may succeed later or with another
// provider.
func (k Kind) Retryable() bool { return k == ErrUnavailable || k == ErrRateLimited }

// Error is a failed Generate.
type Error struct {
	Kind Kind

	// Message says what happened, for operators and their logs. It never contains a credential. It
	// may quote the provider, so it must not be sent to peers.
	Message string

	// RetryAfter is the delay before a retry that the provider asked for; 0 if
	// it asked for none.
	RetryAfter time.Duration

	// Status is the provider's HTTP status; 0 if there was none.
	Status int

	// Err is the cause, for errors.Is and errors.As; it may be nil. Its text
	// is not part of Error's.
	Err error

	// Route is the route that failed, from a Model that routes; see
	// [Request].Avoid.
	Route string

	// Tries are all routes that did not answer this request, in order, from a
	// Model that routes. Unlike Message they may be sent to peers.
	Tries []Try
}

// Try is a route that did not answer a request.
type Try struct {
	Route      string        // its provider and model, "openai/gpt-4o"
	Kind       Kind          // why
	RetryAfter time.Duration // the delay that it asked for; 0 if none
	Asked      bool          // false if it was not called, because it had asked for a delay or failed too often
}

// String describes the try in a text that may be sent to peers.
func (t Try) String() string {
	s := t.Route + ": "
	if !t.Asked {
		s += "not asked after an earlier failure: "
	}
	return s + t.Kind.Error() + advice(t.RetryAfter)
}

// advice describes a delay that a provider asked for.
func advice(after time.Duration) string {
	if after <= 0 {
		return ""
	}
	return fmt.Sprintf(" (retry after %s)", after.Round(time.Millisecond))
}

// Errorf returns an Error without status. A %w in the format sets the cause,
// whose text then is part of the message.
func Errorf(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := &Error{Kind: kind, Message: err.Error()}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		e.Err = err.Unwrap()
	case interface{ Unwrap() []error }:
		e.Err = err.(error)
	}
	return e
}

// Error returns the kind, the message, the status and, once, the retry advice.
func (e *Error) Error() string {
	s := e.Kind.Error()
	if e.Status != 0 {
		s += fmt.Sprintf(" (HTTP %d)", e.Status)
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	if after := advice(e.RetryAfter); !strings.Contains(s, after) { // the message of an error of several routes says it
		s += after
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is e's Kind.
func (e *Error) Is(target error) bool {
	k, ok := target.(Kind)
	return ok && k == e.Kind
}
