package directory

import (
	"fmt"

	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Problem is the error of a reference that cannot be resolved.
type Problem struct {
	Kind  error  // orchestrate.ErrUnknown or orchestrate.ErrUnanswered
	Ref   string // truncated if it is long
	Why   string
	Hint  string // what an operator can do; "" if that is obvious
	Cause error  // may be nil
}

// Error is the message for an operator.
func (p *Problem) Error() string {
	text := fmt.Sprintf("%q: %s", p.Ref, p.Why)
	if p.Cause != nil {
		text += ": " + p.Cause.Error()
	}
	if p.Hint != "" {
		text += " (" + p.Hint + ")"
	}
	return text
}

// Unwrap returns the kind and the cause.
func (p *Problem) Unwrap() []error {
	if p.Cause == nil {
		return []error{p.Kind}
	}
	return []error{p.Kind, p.Cause}
}

func unknown(ref, why, hint string, cause error) error {
	return &Problem{orchestrate.ErrUnknown, clip.Text(ref, 120), why, hint, cause}
}

func noAgent(ref, why, hint string, cause error) error {
	return &Problem{orchestrate.ErrUnanswered, clip.Text(ref, 120), why, hint, cause}
}
