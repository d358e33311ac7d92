package condition

import (
	"context"
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition/limit"
)

// Errors of compiling or evaluating a condition.
var (
	// ErrHint: the condition is a string, which no runtime evaluates.
	ErrHint = errors.New("a condition in words is a hint: it is not evaluated, and is unsatisfied")
	// ErrLanguage: the language is not supported. The agent's safety level
	// decides whether it is hosted; see [aaif.Negotiate].
	ErrLanguage = errors.New("this runtime does not evaluate the language")
	// ErrSyntax: the expression is not valid in its language.
	ErrSyntax = errors.New("the expression does not compile")
	// ErrTooLarge: the expression or the value is too large, or nested too deep.
	ErrTooLarge = errors.New("too large")
	// ErrValue: the value is not valid JSON.
	ErrValue = errors.New("the value is no JSON")
	// ErrEval: the expression cannot be evaluated on this value.
	ErrEval = errors.New("the expression cannot be evaluated")
	// ErrCost: the evaluation would cost more than [Options].MaxCost.
	ErrCost = limit.ErrCost
	// ErrTimeout: the evaluation took longer than [Options].Timeout.
	ErrTimeout = errors.New("the evaluation takes too long")
	// ErrPanic: the evaluator panicked. Callers should write it to an audit
	// log.
	ErrPanic = errors.New("the evaluator failed")
)

// Error is the reason why a condition does not compile or could not be
// evaluated.
type Error struct {
	Lang   aaif.Language // "" if no language is concerned
	Kind   error         // one of the errors above
	Reason error         // the cause; may be nil. Its text contains no part of the value.
}

// Error returns the language and the reason, in one line.
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

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Reason }

// failure converts an evaluator's error for the caller.
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
