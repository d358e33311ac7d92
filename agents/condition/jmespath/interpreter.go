package jmespath

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/jmespath-community/go-jmespath/pkg/functions"
	"github.com/jmespath-community/go-jmespath/pkg/parsing"
	"github.com/jmespath-community/go-jmespath/pkg/util"

	"github.com/aeemesh/aeemesh/agents/condition/limit"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// interpreter is one evaluation.
type interpreter struct {
	b    *limit.Budget
	root any
}

// scope holds the bindings of let; parent is the enclosing scope.
type scope struct {
	name  string
	value any
	outer *scope
}

// node is the parser's type of nodes.
type node = parsing.ASTNode

// eval evaluates a part of the expression on a value.
func (in *interpreter) eval(n *node, v any, s *scope) (any, error) {
	in.b.Spend(1)
	switch n.NodeType {
	case parsing.ASTIdentity, parsing.ASTCurrentNode:
		return v, nil
	case parsing.ASTRootNode:
		return in.root, nil
	case parsing.ASTLiteral:
		return n.Value, nil
	case parsing.ASTField:
		if m, ok := v.(map[string]any); ok {
			return m[n.Value.(string)], nil
		}
		return nil, nil
	case parsing.ASTIndex:
		return at(v, n.Value.(int)), nil
	case parsing.ASTSubexpression, parsing.ASTIndexExpression:
		left, err := in.eval(&n.Children[0], v, s)
		if err != nil || left == nil {
			return nil, err
		}
		return in.eval(&n.Children[1], left, s)
	case parsing.ASTPipe:
		var err error
		for i := range n.Children {
			if v, err = in.eval(&n.Children[i], v, s); err != nil {
				return nil, err
			}
		}
		return v, nil
	case parsing.ASTKeyValPair:
		return in.eval(&n.Children[0], v, s)
	case parsing.ASTExpRef:
		return functions.ExpRef(func(v any) (any, error) { return in.eval(&n.Children[0], v, s) }), nil
	case parsing.ASTFunctionExpression:
		return in.call(n, v, s)
	case parsing.ASTVariable:
		for ; s != nil; s = s.outer {
			if s.name == n.Value.(string) {
				return s.value, nil
			}
		}
		return nil, fmt.Errorf("the variable $%s is not defined", clip.Text(n.Value.(string), 40))
	case parsing.ASTLetExpression:
		return in.let(n, v, s)
	case parsing.ASTOrExpression, parsing.ASTAndExpression:
		left, err := in.eval(&n.Children[0], v, s)
		if err != nil || truthy(left) == (n.NodeType == parsing.ASTOrExpression) {
			return left, err
		}
		return in.eval(&n.Children[1], v, s)
	case parsing.ASTNotExpression:
		x, err := in.eval(&n.Children[0], v, s)
		return !truthy(x), err
	case parsing.ASTComparator, parsing.ASTArithmeticExpression:
		left, err := in.eval(&n.Children[0], v, s)
		if err != nil {
			return nil, err
		}
		right, err := in.eval(&n.Children[1], v, s)
		if err != nil {
			return nil, err
		}
		return in.binary(n, left, right), nil
	case parsing.ASTArithmeticUnaryExpression:
		x, err := in.eval(&n.Children[0], v, s)
		f, ok := limit.Float(x)
		if err != nil || !ok {
			return nil, err
		}
		if n.Value == parsing.TOKMinus {
			f = -f
		}
		return f, nil
	case parsing.ASTMultiSelectList:
		out := make([]any, len(n.Children))
		for i := range n.Children {
			var err error
			if out[i], err = in.eval(&n.Children[i], v, s); err != nil {
				return nil, err
			}
		}
		return out, nil
	case parsing.ASTMultiSelectHash:
		out := make(map[string]any, len(n.Children))
		for i := range n.Children {
			x, err := in.eval(&n.Children[i], v, s)
			if err != nil {
				return nil, err
			}
			out[n.Children[i].Value.(string)] = x
		}
		return out, nil
	case parsing.ASTProjection, parsing.ASTValueProjection, parsing.ASTFilterProjection, parsing.ASTFlatten:
		return in.projection(n, v, s)
	case parsing.ASTSlice:
		return in.slice(n, v)
	}
	return nil, errors.New("the expression has a part that this evaluator does not know")
}

func at(v any, i int) any {
	list, _ := v.([]any)
	if i < 0 {
		i += len(list)
	}
	if i < 0 || i >= len(list) {
		return nil
	}
	return list[i]
}

// let evaluates its bindings in the enclosing scope.
func (in *interpreter) let(n *node, v any, s *scope) (any, error) {
	inner := s
	for i := range n.Children[0].Children {
		binding := &n.Children[0].Children[i]
		x, err := in.eval(&binding.Children[1], v, s)
		if err != nil {
			return nil, err
		}
		inner = &scope{binding.Children[0].Value.(string), x, inner}
	}
	return in.eval(&n.Children[1], v, inner)
}

func (in *interpreter) binary(n *node, left, right any) any {
	switch n.Value {
	case parsing.TOKEQ:
		return in.b.Equal(left, right)
	case parsing.TOKNE:
		return !in.b.Equal(left, right)
	}
	x, xok := limit.Float(left)
	y, yok := limit.Float(right)
	if !xok || !yok {
		return nil // only numbers can be ordered
	}
	switch n.Value {
	case parsing.TOKGT:
		return x > y
	case parsing.TOKGTE:
		return x >= y
	case parsing.TOKLT:
		return x < y
	case parsing.TOKLTE:
		return x <= y
	case parsing.TOKPlus:
		return x + y
	case parsing.TOKMinus:
		return x - y
	case parsing.TOKStar, parsing.TOKMultiply:
		return x * y
	case parsing.TOKDivide:
		return x / y
	case parsing.TOKModulo:
		return math.Mod(x, y)
	case parsing.TOKDiv:
		return math.Floor(x / y)
	}
	return nil
}

// projection applies its right side to each element of its left side. It also
// implements flattening, which makes such elements.
func (in *interpreter) projection(n *node, v any, s *scope) (any, error) {
	left, err := in.eval(&n.Children[0], v, s)
	if err != nil {
		return nil, err
	}
	var items []any
	switch left := left.(type) {
	case []any:
		if n.NodeType == parsing.ASTValueProjection {
			return nil, nil
		}
		items = left
	case map[string]any:
		if n.NodeType != parsing.ASTValueProjection {
			return nil, nil
		}
		items = in.values(left)
	case string:
		if n.NodeType == parsing.ASTProjection && isSlice(&n.Children[0]) {
			return left, nil // a slice of a text is a text and not a projection
		}
		return nil, nil
	default:
		return nil, nil
	}
	if n.NodeType == parsing.ASTFlatten {
		return in.flatten(items), nil
	}
	out := []any{}
	for _, e := range items {
		in.b.Spend(1)
		if n.NodeType == parsing.ASTFilterProjection {
			keep, err := in.eval(&n.Children[2], e, s)
			if err != nil {
				return nil, err
			}
			if !truthy(keep) {
				continue
			}
		}
		x, err := in.eval(&n.Children[1], e, s)
		if err != nil {
			return nil, err
		}
		if x != nil {
			out = append(out, x)
		}
	}
	return out, nil
}

func isSlice(n *node) bool {
	return n.NodeType == parsing.ASTIndexExpression && len(n.Children) > 1 && n.Children[1].NodeType == parsing.ASTSlice
}

// values returns an object's values, in the order of their names.
func (in *interpreter) values(m map[string]any) []any {
	in.b.Spend(2 * len(m))
	out := make([]any, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}

func (in *interpreter) flatten(items []any) []any {
	out := []any{}
	for _, e := range items {
		if list, ok := e.([]any); ok {
			in.b.Spend(len(list))
			out = append(out, list...)
		} else {
			in.b.Spend(1)
			out = append(out, e)
		}
	}
	return out
}

func (in *interpreter) slice(n *node, v any) (any, error) {
	params := util.MakeSliceParams(n.Value.([]*int))
	switch v := v.(type) {
	case []any:
		in.b.Spend(len(v))
		return util.Slice(v, params)
	case string:
		in.b.Spend(len(v))
		runes, err := util.Slice([]rune(v), params)
		return string(runes), err
	}
	return nil, nil
}
