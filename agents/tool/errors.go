package tool

import "strings"

// Kind is a class of failure. Each Kind is a sentinel for errors.Is.
type Kind string

// The kinds, and who has to correct the problem.
const (
	// ErrNotFound: no tool has the name. The model made a mistake, or the
	// operator has not registered the tool.
	ErrNotFound Kind = "not_found"

	// ErrInvalidArguments: the arguments break the schema or their size bound.
	// The model may correct its call.
	ErrInvalidArguments Kind = "invalid_arguments"

	// ErrInvalidResult: the result is not valid JSON, or violates its schema or
	// its size limit. The tool's author has to correct it.
	ErrInvalidResult Kind = "invalid_result"

	// ErrTimeout: the call reached its time limit. Whether it had an effect is
	// unknown.
	ErrTimeout Kind = "timeout"

	// ErrBusy: too many earlier calls of this tool exceeded their time limit
	// and are still running. A retry may help.
	ErrBusy Kind = "busy"

	// ErrUnavailable: the service behind the tool cannot be reached; the call
	// was not made. A retry may help.
	ErrUnavailable Kind = "unavailable"

	// ErrRefused: the operator's policy does not permit the call. Only the
	// operator can change that.
	ErrRefused Kind = "refused"

	// ErrFailed: the tool returned an error, or panicked.
	ErrFailed Kind = "failed"
)

// Error returns the kind in words.
func (k Kind) Error() string {
	if k == ErrTimeout {
		return "timed out"
	}
	return strings.ReplaceAll(string(k), "_", " ")
}

// Error is a failed call.
type Error struct {
	Kind Kind
	Tool string // its name

	// Message describes the failure, for the model and for people.
	Message string

	// NotMade reports that the call was not made: there was no connection, no credential or no
	// program, or the arguments were unusable. Such a call does not count against a rate limit.
	NotMade bool

	// Err is the cause, for logs, errors.Is and errors.As; it may be nil. Its
	// text is not part of Error's.
	Err error
}

// Error returns the tool, the kind and the message.
func (e *Error) Error() string {
	s := "tool " + e.Tool + ": " + e.Kind.Error()
	if e.Message != "" {
		s += ": " + e.Message
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
