package jmespath

import (
	"errors"
	"fmt"

	"github.com/jmespath-community/go-jmespath/pkg/functions"
	"github.com/jmespath-community/go-jmespath/pkg/parsing"

	"github.com/aeemesh/aeemesh/agents/condition/limit"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Program is a compiled expression.
type Program struct{ root parsing.ASTNode }

// maxNesting bounds the brackets that are open at the same time, and maxSource
// the bytes of an expression: the parser recurses, and Go cannot recover from a
// stack overflow.
const (
	maxNesting = 100
	maxSource  = 64 << 10
)

// Compile parses an expression.
func Compile(text string) (p *Program, err error) {
	if len(text) > maxSource {
		return nil, fmt.Errorf("the expression is longer than %d bytes", maxSource)
	}
	if err := checkNesting(text); err != nil {
		return nil, err
	}
	defer func() {
		if recover() != nil { // the parser panics on some malformed expressions
			p, err = nil, errors.New("this is no JMESPath expression")
		}
	}()
	root, err := parsing.NewParser().Parse(text)
	if err != nil {
		var bad parsing.SyntaxError
		if errors.As(err, &bad) {
			return nil, errors.New(bad.Error())
		}
		return nil, err
	}
	if err := check(&root, nil); err != nil {
		return nil, err
	}
	return &Program{root}, nil
}

// Eval evaluates the expression. The value is JSON as package encoding/json
// decodes it, and is not changed.
func (p *Program) Eval(b *limit.Budget, value any) (bool, error) {
	v, err := p.Search(b, value)
	return err == nil && truthy(v), err
}

// Search returns the expression's result.
func (p *Program) Search(b *limit.Budget, value any) (any, error) {
	in := &interpreter{b: b, root: value}
	return in.eval(&p.root, value, nil)
}

// truthy implements JMESPath's truth values.
func truthy(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	case nil:
		return false
	}
	return true
}

// checkNesting counts open brackets outside of quotes.
func checkNesting(text string) error {
	depth, quote := 0, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case c == '(' || c == '[' || c == '{':
			if depth++; depth > maxNesting {
				return fmt.Errorf("the expression is nested deeper than %d", maxNesting)
			}
		case c == ')' || c == ']' || c == '}':
			depth--
		}
	}
	return nil
}

// check reports errors that the parser does not detect: unknown functions,
// wrong numbers of arguments, & in a place where no function expects it, and let
// and = without each other.
func check(n, parent *parsing.ASTNode) error {
	switch n.NodeType {
	case parsing.ASTFunctionExpression:
		name, _ := n.Value.(string)
		f, ok := table[name]
		if !ok {
			return fmt.Errorf("jmespath has no function %q", clip.Text(name, 40))
		}
		low, high := arity(f.Arguments)
		if got := len(n.Children); got < low || high >= 0 && got > high {
			return fmt.Errorf("%s takes %s arguments, not %d", name, span(low, high), got)
		}
	case parsing.ASTExpRef:
		if parent == nil || parent.NodeType != parsing.ASTFunctionExpression {
			return errors.New("& is for arguments of functions alone")
		}
	case parsing.ASTBindings:
		for i := range n.Children {
			if c := &n.Children[i]; c.NodeType != parsing.ASTBinding || c.Children[0].NodeType != parsing.ASTVariable {
				return errLet
			}
		}
	case parsing.ASTBinding:
		if parent == nil || parent.NodeType != parsing.ASTBindings {
			return errLet
		}
	}
	for i := range n.Children {
		if err := check(&n.Children[i], n); err != nil {
			return err
		}
	}
	return nil
}

var errLet = errors.New("variables are bound so: let $name = expression, $other = expression in expression")

func arity(specs []functions.ArgSpec) (low, high int) {
	high = len(specs)
	for _, s := range specs {
		if !s.Optional {
			low++
		}
		if s.Variadic {
			high = -1
		}
	}
	return low, high
}

func span(low, high int) string {
	switch {
	case high < 0:
		return fmt.Sprintf("at least %d", low)
	case low == high:
		return fmt.Sprint(low)
	}
	return fmt.Sprintf("%d to %d", low, high)
}
