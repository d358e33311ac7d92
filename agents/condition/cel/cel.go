package cel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/env"

	"github.com/aeemesh/aeemesh/agents/condition/limit"
)

// Program is a compiled expression.
type Program struct {
	text    string
	program cel.Program
}

// lookEvery is how many steps of a comprehension are evaluated between two
// checks of the context. Without this option CEL never checks it.
const lookEvery = 100

// base is the standard environment. Expressions add their variables to it.
var base = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewCustomEnv(
		cel.StdLib(cel.StdLibSubset(env.NewLibrarySubset().AddExcludedFunctions(env.NewFunction("matches")))), matches(),
		cel.CustomTypeAdapter(adapter{}), cel.ParserRecursionLimit(100), cel.ParserExpressionSizeLimit(64<<10),
	)
})

// Compile parses and checks an expression. cost bounds the cost of an
// evaluation.
func Compile(text string, cost limit.Cost) (*Program, error) {
	std, err := base()
	if err != nil {
		return nil, err
	}
	parsed, issues := std.Parse(text)
	if issues.Err() != nil {
		return nil, issue(issues)
	}
	var options []cel.EnvOption
	for name := range variables(parsed.NativeRep().Expr()) {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	own, err := std.Extend(options...)
	if err != nil {
		return nil, err
	}
	checked, issues := own.Check(parsed)
	if issues.Err() != nil {
		return nil, issue(issues)
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("a condition is true or false, and this is of type %s", t)
	}
	if err := checkPatterns(checked.NativeRep().Expr()); err != nil {
		return nil, err
	}
	program, err := own.Program(checked, cel.CostLimit(uint64(cost)), cel.CostTracking(sizes(cost)), cel.CustomDecoratorV2(paid), cel.InterruptCheckFrequency(lookEvery))
	if err != nil {
		return nil, err
	}
	return &Program{text, program}, nil
}

// issue describes the first error in an expression, in one line.
func issue(issues *cel.Issues) error {
	errs := issues.Errors()
	if len(errs) == 0 {
		return issues.Err()
	}
	e := errs[0]
	what, _, _ := strings.Cut(strings.TrimPrefix(e.Message, "Syntax error: "), " expecting {") // which lists all possible tokens
	what = strings.Replace(what, "mismatched input '<EOF>'", "more is expected than this", 1)
	if e.Location.Line() < 1 {
		return errors.New(what) // the error is about the whole expression
	}
	return fmt.Errorf("at %d:%d: %s", e.Location.Line(), e.Location.Column()+1, what)
}

// known are the names that CEL predefines.
var known = map[string]bool{
	"bool": true, "int": true, "uint": true, "double": true, "string": true, "bytes": true,
	"list": true, "map": true, "type": true, "null_type": true, "dyn": true, "google": true,
}

// variables returns the names of the variables that an expression takes from
// its value.
func variables(expr ast.Expr) map[string]bool {
	names, own := make(map[string]bool), make(map[string]bool)
	ast.PreOrderVisit(expr, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.IdentKind:
			if name := strings.TrimPrefix(e.AsIdent(), "."); !known[name] && !strings.HasPrefix(name, "@") && !strings.HasPrefix(name, "__") {
				names[name] = true
			}
		case ast.ComprehensionKind:
			c := e.AsComprehension()
			own[c.AccuVar()] = true
		}
	}))
	for name := range own {
		delete(names, name)
	}
	return names
}

// ErrNoObject is the error of a value that is not an object, and so has no
// variables.
var ErrNoObject = errors.New("a value that is no object has no variables for cel")

// costExceeded is a part of CEL's error text for an evaluation that exceeds its
// cost.
const costExceeded = "cost limit exceeded"

// Eval evaluates the expression. The value is JSON as package encoding/json
// decodes it; its members are the variables.
func (p *Program) Eval(ctx context.Context, value any) (bool, error) {
	members, ok := value.(map[string]any)
	if !ok && value != nil {
		return false, ErrNoObject
	}
	if members == nil {
		members = map[string]any{}
	}
	out, _, err := p.program.ContextEval(ctx, members)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return false, ctx.Err()
	case strings.Contains(err.Error(), costExceeded):
		return false, limit.ErrCost
	default:
		return false, p.explain(err)
	}
	result, ok := out.Value().(bool)
	if !ok {
		return false, fmt.Errorf("a condition is true or false, and this is of type %s", out.Type().TypeName())
	}
	return result, nil
}

// explain returns the reason of an error, with a hint. CEL's errors may end
// with a part of the value; it is kept only if the expression contains it, too.
func (p *Program) explain(err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "no such overload"):
		return errors.New("no such overload (the numbers of JSON are doubles: write 1.0, or int(x))")
	case strings.Contains(text, "internal error"):
		return &limit.PanicError{Value: err}
	}
	what, detail, _ := strings.Cut(text, ": ")
	switch {
	case detail != "" && strings.Contains(p.text, detail):
		return fmt.Errorf("%s: %s", what, detail)
	case strings.ContainsAny(what, "'\""):
		return errors.New("a value is not what a function or a conversion takes")
	}
	return errors.New(what)
}
