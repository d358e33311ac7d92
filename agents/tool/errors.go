package tool

// Kind is a class of failure. Each Kind is a sentinel for errors.Is.
type Kind string

// The kinds, and who mends them.
const (
	// ErrNotFound: no tool has the name. The model chose wrongly, or the
	// operator gave no such tool.
	ErrNotFound Kind = "not_found"

	// ErrInvalidArguments: the arguments break the schema or their size bound.
	// The model may mend its call.
	ErrInvalidArguments Kind = "invalid_arguments"

	// ErrInvalidResult: the result is no JSON, breaks its schema or its size
	// bound. The tool's author mends it.
	ErrInvalidResult Kind = "invalid_result"

	// ErrTimeout: the call reached its time limit. Whether it had an effect is
	// unknown.
	ErrTimeout Kind = "timeout"

	// ErrBusy: too many earlier calls of this tool overran their time and
	// still run. Later it may do.
	ErrBusy Kind = "busy"

	// ErrUnavailable: what stands behind the tool cannot be reached; the call
	// was not made. Later it may be.
	ErrUnavailable Kind = "unavailable"

	// ErrRefused: the operator's policy does not allow what the tool was to
	// do. The operator mends it, or means it.
	ErrRefused Kind = "refused"

	// ErrFailed: the tool itself says so, or panicked.
	ErrFailed Kind = "failed"
)

// Kinds are all the kinds there are.
func Kinds() []Kind {
	return []Kind{ErrNotFound, ErrInvalidArguments, ErrInvalidResult, ErrTimeout, ErrBusy, ErrUnavailable, ErrRefused, ErrFailed}
}

// Error returns the kind in words.
func (k Kind) Error() string {
	switch k {
	case ErrNotFound:
		return "not found"
	case ErrInvalidArguments:
		return "invalid arguments"
	case ErrInvalidResult:
		return "invalid result"
	case ErrTimeout:
		return "timed out"
	case ErrBusy:
		return "busy"
	case ErrUnavailable:
		return "unavailable"
	case ErrRefused:
		return "refused"
	case ErrFailed:
		return "failed"
	}
	return string(k)
}

// Error is a failed call.
type Error struct {
	Kind Kind
	Tool string // its name

	// Message says what happened, for the model and for people.
	Message string

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
