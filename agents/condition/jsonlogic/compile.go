package jsonlogic

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/aeemesh/aeemesh/agents/condition/limit"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Program is a compiled rule.
type Program struct{ root node }

// maxDepth bounds the nesting of a rule.
const maxDepth = 100

// node is a compiled part of a rule.
type node interface {
	eval(b *limit.Budget, data any) any
}

// Compile compiles a rule, which may be any JSON value: a value that is not an
// operation is a literal.
func Compile(rule []byte) (*Program, error) {
	var v any
	if err := json.Unmarshal(rule, &v); err != nil {
		return nil, fmt.Errorf("a jsonlogic rule is JSON: %w", err)
	}
	return CompileValue(v)
}

// CompileValue compiles a rule that was decoded already.
func CompileValue(rule any) (*Program, error) {
	root, err := compile(rule, maxDepth)
	if err != nil {
		return nil, err
	}
	return &Program{root}, nil
}

// Eval evaluates the rule, and reports whether its result is truthy. The value
// is JSON as package encoding/json decodes it, and is not modified.
func (p *Program) Eval(b *limit.Budget, value any) (bool, error) {
	return truthy(p.root.eval(b, value)), nil
}

func compile(rule any, depth int) (node, error) {
	if depth == 0 {
		return nil, fmt.Errorf("the rule is nested deeper than %d", maxDepth)
	}
	switch r := rule.(type) {
	case []any:
		items, err := compileAll(r, depth)
		if err != nil {
			return nil, err
		}
		return list(items), nil
	case map[string]any:
		if len(r) != 1 {
			return literal{r}, nil // as in the reference implementation: a literal
		}
		for name, args := range r {
			values, ok := args.([]any)
			if !ok {
				values = []any{args}
			}
			items, err := compileAll(values, depth)
			if err != nil {
				return nil, err
			}
			if make, ok := controls[name]; ok {
				return make(items), nil
			}
			if f, ok := operations[name]; ok {
				return call{f, items}, nil
			}
			return nil, fmt.Errorf("jsonlogic has no operator %q", clip.Text(name, 40))
		}
	}
	return literal{rule}, nil
}

func compileAll(values []any, depth int) ([]node, error) {
	items := make([]node, len(values))
	for i, v := range values {
		var err error
		if items[i], err = compile(v, depth-1); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// literal is a constant.
type literal struct{ value any }

func (l literal) eval(b *limit.Budget, _ any) any { b.Spend(1); return l.value }

// list is an array whose elements are evaluated.
type list []node

func (l list) eval(b *limit.Budget, data any) any {
	b.Spend(1 + len(l))
	out := make([]any, len(l))
	for i, n := range l {
		out[i] = n.eval(b, data)
	}
	return out
}

// call evaluates all arguments, then the operation.
type call struct {
	f    operation
	args []node
}

func (c call) eval(b *limit.Budget, data any) any {
	b.Spend(1 + len(c.args))
	var few [4]any
	args := few[:0]
	for _, n := range c.args {
		args = append(args, n.eval(b, data))
	}
	return c.f(b, data, args)
}
