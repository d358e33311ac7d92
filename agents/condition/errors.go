package condition

import (
	"context"
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition/limit"
)

// What can be wrong with a condition, or with holding it against a value.
var (
	// ErrHint: the condition is a string, which no runtime evaluates.
	ErrHint = errors.New("a condition in words is a hint: it is not evaluated, and is unsatisfied")
	// ErrLanguage: there is no such language here. What becomes of the agent is
	// for its safety level to say; see [aaif.Negotiate].
	ErrLanguage = errors.New("this runtime does not evaluate the language")
	// ErrSyntax: the expression is none of its language.
	ErrSyntax = errors.New("the expression does not compile")
	// ErrTooLarge: the expression or the value is too large, or nested too deep.
	ErrTooLarge = errors.New("too large")
	// ErrValue: the value is no JSON.
	ErrValue = errors.New("the value is no JSON")
	// ErrEval: the expression cannot be evaluated on this value.
	ErrEval = errors.New("the expression cannot be evaluated")
	// ErrCost: the evaluation would cost more than [Options].MaxCost.
	ErrCost = limit.ErrCost
	// ErrTimeout: the evaluation took longer than [Options].Timeout.
	ErrTimeout = errors.New("the evaluation takes too long")
	// ErrPanic: the evaluator panicked. Worth a line in an audit log.
	ErrPanic = errors.New("the evaluator failed")
)

// Error is why a condition does not compile or could not be evaluated.
type Error struct {
	Lang   aaif.Language // "" where no language is concerned
	Kind   error         // one of the errors above
	Reason error         // more; may be nil. Its text has no part of the value.
}

// Error is the language and the reason, in one line.
func (e *Error) Error() string {
	text := e.Kind.Error()
	if e.Reason != nil {
		text = e.Reason.Error()
	}
	if e.Lang == "" {
		return text
	}
	return fmt.Sprintf("%s: %s", e.Lang, text)
}

// Is makes errors.Is(err, ErrCost) work.
func (e *Error) Is(target error) bool { return target == e.Kind }

// Unwrap is the reason.
func (e *Error) Unwrap() error { return e.Reason }

// failure is what an evaluator's error is to whoever asked.
func failure(lang aaif.Language, err error, timed context.Context, o Options) error {
	e := &Error{Lang: lang, Kind: ErrEval, Reason: err}
	var panicked *limit.PanicError
	switch {
	case errors.As(err, &panicked):
		e.Kind = ErrPanic
	case errors.Is(err, limit.ErrCost), errors.Is(err, limit.ErrDepth):
		e.Kind = ErrCost
	case timed.Err() != nil:
		e.Kind, e.Reason = ErrTimeout, fmt.Errorf("%w: more than %s", ErrTimeout, o.Timeout)
	}
	return e
}
