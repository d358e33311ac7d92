package condition

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition/cel"
	"github.com/aeemesh/aeemesh/agents/condition/jmespath"
	"github.com/aeemesh/aeemesh/agents/condition/jsonlogic"
	"github.com/aeemesh/aeemesh/agents/condition/jsonpath"
	"github.com/aeemesh/aeemesh/agents/condition/limit"
)

// Defaults and limits of [Options].
const (
	DefaultMaxSource = 16 << 10
	DefaultMaxCost   = 1_000_000
	DefaultTimeout   = time.Second
)

// Options bound a program. The zero value stands for the defaults.
type Options struct {
	// MaxSource bounds the expression, in bytes; at most and by default 16 KiB.
	// It is checked before parsing, because deep nesting can overflow a
	// parser's stack and crash the process.
	MaxSource int
	// MaxCost bounds the work of one evaluation, in units of about one step or
	// one element; default 1,000,000, some tens of milliseconds. The count is
	// the same on every machine.
	MaxCost int64
	// Timeout bounds the time of one evaluation; default 1 second. It matters
	// on overloaded machines only: otherwise MaxCost ends an evaluation long
	// before.
	Timeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.MaxSource <= 0 || o.MaxSource > DefaultMaxSource {
		o.MaxSource = DefaultMaxSource
	}
	if o.MaxCost <= 0 {
		o.MaxCost = DefaultMaxCost
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	return o
}

// Languages returns the languages that this package evaluates: all that the
// registry lists.
func Languages() aaif.Set[aaif.Language] {
	return aaif.SetOf(aaif.LangJSONPath, aaif.LangJMESPath, aaif.LangCEL, aaif.LangJSONLogic, aaif.LangAlways, aaif.LangNever)
}

// Program is a compiled condition.
type Program struct {
	lang aaif.Language
	eval evaluator
	opts Options
}

// evaluator evaluates a condition on a value, within a budget or a cost.
type evaluator func(ctx context.Context, value any, o Options) (bool, error)

// Compile compiles a condition. A condition that is a string compiles to a
// program that is never satisfied; see [Program.Hint].
//
// Its error is an [*Error] that is [ErrLanguage], [ErrTooLarge] or [ErrSyntax].
// An expression may be nested 100 deep.
func Compile(c aaif.Condition, o Options) (*Program, error) {
	p := &Program{lang: c.Lang, opts: o.withDefaults()}
	switch {
	case c.IsString():
		p.eval = func(context.Context, any, Options) (bool, error) { return false, ErrHint }
		return p, nil
	case !Languages().Has(c.Lang):
		return nil, &Error{Lang: c.Lang, Kind: ErrLanguage}
	case len(c.Expr) > p.opts.MaxSource:
		return nil, &Error{Lang: c.Lang, Kind: ErrTooLarge, Reason: fmt.Errorf("an expression has at most %d bytes, this one %d", p.opts.MaxSource, len(c.Expr))}
	}
	eval, err := guard(func() (evaluator, error) { return compile(c, p.opts) })
	if err != nil {
		return nil, &Error{Lang: c.Lang, Kind: ErrSyntax, Reason: err}
	}
	p.eval = eval
	return p, nil
}

// guard converts a panic of f to an error: the parsers are third-party code.
func guard[T any](f func() (T, error)) (T, error) {
	return limit.Run(context.Background(), 1, func(*limit.Budget) (T, error) { return f() })
}

func compile(c aaif.Condition, o Options) (evaluator, error) {
	switch c.Lang {
	case aaif.LangAlways:
		return func(context.Context, any, Options) (bool, error) { return true, nil }, nil
	case aaif.LangNever:
		return func(context.Context, any, Options) (bool, error) { return false, nil }, nil
	case aaif.LangJSONLogic:
		rule, err := ruleOf(c)
		if err != nil {
			return nil, err
		}
		p, err := jsonlogic.Compile(rule)
		if err != nil {
			return nil, err
		}
		return budgeted(p.Eval), nil
	}
	if kind := jsontext.Value(c.Expr).Kind(); kind != '"' {
		return nil, fmt.Errorf("a %s expression is text, in quotes", c.Lang)
	}
	text := c.Text()
	switch c.Lang {
	case aaif.LangJSONPath:
		q, err := jsonpath.Compile(text)
		if err != nil {
			return nil, err
		}
		return budgeted(q.Exists), nil
	case aaif.LangJMESPath:
		p, err := jmespath.Compile(text)
		if err != nil {
			return nil, err
		}
		return budgeted(p.Eval), nil
	default:
		p, err := cel.Compile(text, limit.Cost(o.MaxCost))
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, value any, _ Options) (bool, error) { return p.Eval(ctx, value) }, nil
	}
}

func budgeted(f func(*limit.Budget, any) (bool, error)) evaluator {
	return func(ctx context.Context, value any, o Options) (bool, error) {
		return limit.Run(ctx, limit.Cost(o.MaxCost), func(b *limit.Budget) (bool, error) { return f(b, value) })
	}
}

// Lang returns the program's language, "" for a hint.
func (p *Program) Lang() aaif.Language { return p.lang }

// Hint reports whether the condition was a string: such a condition is not
// evaluated and never satisfied. A caller that routes by conditions SHOULD warn
// that it is not portable.
func (p *Program) Hint() bool { return p.lang == "" }

// Eval reports whether a value satisfies the condition. If it returns an error,
// the result is false.
//
// The error is [ErrHint], the context's own if that has ended, or an [*Error]
// that is [ErrCost], [ErrTimeout], [ErrPanic] or [ErrEval].
func (p *Program) Eval(ctx context.Context, v Value) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if p.lang == "" || p.lang == aaif.LangAlways || p.lang == aaif.LangNever {
		return p.eval(ctx, nil, p.opts)
	}
	timed, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	ok, err := limit.Run(timed, 1, func(*limit.Budget) (bool, error) { return p.eval(timed, v.data, p.opts) })
	if err == nil {
		return ok, nil
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	return false, failure(p.lang, err, timed, p.opts)
}
