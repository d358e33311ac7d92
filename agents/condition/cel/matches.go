package cel

import (
	"errors"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/aeemesh/aeemesh/agents/condition/limit"
)

// maxMatch bounds the cost of one call of matches, because CEL adds the cost of
// a call only after it was made.
const maxMatch limit.Cost = 1_000_000

// matches replaces CEL's function by one with limits: CEL's own compiles any
// regular expression, and 16 KiB of x{1000} take half a gigabyte.
func matches() cel.EnvOption {
	args := []*cel.Type{cel.StringType, cel.StringType}
	return cel.Function(overloads.Matches,
		cel.Overload(overloads.Matches, args, cel.BoolType),
		cel.MemberOverload(overloads.MatchesString, args, cel.BoolType),
		cel.SingletonBinaryBinding(func(text, pattern ref.Val) ref.Val {
			t, ok := text.(types.String)
			p, isText := pattern.(types.String)
			if !ok || !isText {
				return types.NewErr("no such overload")
			}
			re, err := limit.Compile(string(p))
			switch {
			case errors.Is(err, limit.ErrPattern), err == nil && re.Cost(string(t)) > maxMatch:
				return types.NewErr("%s", costExceeded)
			case err != nil:
				return types.NewErr("no regular expression")
			}
			return types.Bool(re.MatchString(string(t)))
		}),
	)
}

// checkPatterns compiles the patterns that are literals in an expression.
func checkPatterns(expr ast.Expr) (err error) {
	ast.PreOrderVisit(expr, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != overloads.Matches {
			return
		}
		args := e.AsCall().Args()
		last := args[len(args)-1]
		if last.Kind() != ast.LiteralKind {
			return
		}
		if p, ok := last.AsLiteral().(types.String); ok && err == nil {
			_, err = limit.Compile(string(p))
		}
	}))
	return err
}

// matchCost returns the cost of a call that was made.
func matchCost(text, pattern ref.Val) int {
	t, ok := text.(types.String)
	p, isText := pattern.(types.String)
	if !ok || !isText {
		return 1
	}
	re, err := limit.Compile(string(p))
	if err != nil {
		return len(p)
	}
	return 50 + int(re.Cost(string(t)))
}
