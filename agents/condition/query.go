package condition

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition/jmespath"
	"github.com/aeemesh/aeemesh/agents/condition/limit"
)

// Query is a compiled expression whose result is a value; the result of a
// [Program] is true or false. The language is JMESPath, the only one of the
// four that can make new objects. Of a value made by [Facts.Exact] it keeps the digits
// of numbers that it passes on. A Query is safe for concurrent use.
type Query struct {
	program *jmespath.Program
	opts    Options
}

// CompileQuery compiles an expression in the form of a condition, {"lang":
// "jmespath", "expr": "{text: input.text}"}. Its errors are those of [Compile].
func CompileQuery(c aaif.Condition, o Options) (*Query, error) {
	o = o.withDefaults()
	switch {
	case c.IsString() || c.Lang != aaif.LangJMESPath:
		return nil, &Error{Lang: c.Lang, Kind: ErrLanguage, Reason: errors.New("what makes a value is written in jmespath")}
	case len(c.Expr) > o.MaxSource:
		return nil, &Error{Lang: c.Lang, Kind: ErrTooLarge, Reason: fmt.Errorf("an expression has at most %d bytes, this one %d", o.MaxSource, len(c.Expr))}
	case jsontext.Value(c.Expr).Kind() != '"':
		return nil, &Error{Lang: c.Lang, Kind: ErrSyntax, Reason: errors.New("a jmespath expression is text, in quotes")}
	}
	p, err := guard(func() (*jmespath.Program, error) { return jmespath.Compile(c.Text()) })
	if err != nil {
		return nil, &Error{Lang: c.Lang, Kind: ErrSyntax, Reason: err}
	}
	return &Query{p, o}, nil
}

// Result evaluates the expression and returns its value as JSON, with the
// members of objects in the order of their names. Its errors are those of
// [Program.Eval], and ErrTooLarge for a result larger than [MaxValue].
func (q *Query) Result(ctx context.Context, v Value) (stdjson.RawMessage, error) {
	timed, cancel := context.WithTimeout(ctx, q.opts.Timeout)
	defer cancel()
	raw, err := limit.Run(timed, limit.Cost(q.opts.MaxCost), func(b *limit.Budget) (stdjson.RawMessage, error) {
		result, err := q.program.Search(b, v.data)
		if err != nil {
			return nil, err
		}
		b.Walk(result) // the text of the result may repeat a value: {a: @, b: @}
		return stdjson.Marshal(result)
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, failure(aaif.LangJMESPath, err, timed, q.opts)
	}
	if len(raw) > MaxValue {
		return nil, &Error{Lang: aaif.LangJMESPath, Kind: ErrTooLarge, Reason: fmt.Errorf("the result has %d bytes, at most %d are taken", len(raw), MaxValue)}
	}
	return raw, nil
}
