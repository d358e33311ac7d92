package jmespath

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/jmespath-community/go-jmespath/pkg/functions"

	"github.com/aeemesh/aeemesh/agents/condition/limit"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// table maps names to functions.
var table = func() map[string]functions.FunctionEntry {
	t := make(map[string]functions.FunctionEntry)
	for _, f := range functions.GetDefaultFunctions() {
		t[f.Name] = f
	}
	return t
}()

// call evaluates the arguments, checks their types, spends the cost, and calls
// the function.
func (in *interpreter) call(n *node, v any, s *scope) (any, error) {
	name := n.Value.(string)
	f := table[name]
	args := make([]any, len(n.Children))
	for i := range n.Children {
		x, err := in.eval(&n.Children[i], v, s)
		if err != nil {
			return nil, err
		}
		spec := f.Arguments[min(i, len(f.Arguments)-1)]
		if !slices.ContainsFunc(spec.Types, func(t functions.JpType) bool { return hasType(in.b, x, t) }) {
			return nil, fmt.Errorf("%s: argument %d is %s, and must be %s", name, i+1, typeOf(x), either(spec.Types))
		}
		args[i] = x
	}
	for _, a := range args {
		size(in.b, a)
	}
	if own, ok := owns[name]; ok {
		return own(in.b, args)
	}
	if cost, ok := costs[name]; ok {
		cost(in.b, args)
	}
	x, err := library(name, args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	size(in.b, x)
	return x, nil
}

// library calls a function of the library, which knows numbers of type float64 only. Functions
// that return their arguments, or parts of them, get them as they are.
func library(name string, args []any) (any, error) {
	isExact := func(v any) bool { _, ok := v.(limit.Number); return ok }
	list, _ := args[0].([]any)
	switch name {
	case "not_null", "to_array", "to_string":
		return table[name].Handler(args)
	case "max", "min", "sort":
		if slices.ContainsFunc(list, isExact) { // they are those of the same name by the element itself
			name += "_by"
			args = []any{slices.Clone(list), functions.ExpRef(func(v any) (any, error) { return v, nil })}
		}
	case "avg", "sum":
		list = slices.Clone(list)
		for i := range list {
			list[i], _ = limit.Float(list[i])
		}
		args[0] = list
	}
	for i, a := range args {
		if ref, ok := a.(functions.ExpRef); ok && strings.HasSuffix(name, "_by") {
			args[i] = functions.ExpRef(func(v any) (any, error) {
				x, err := ref(v)
				if isExact(x) {
					x, _ = limit.Float(x)
				}
				return x, err
			})
		} else if isExact(a) {
			args[i], _ = limit.Float(a)
		}
	}
	return table[name].Handler(args)
}

// size spends the cost of a value's own size, without the values that are
// nested in it.
func size(b *limit.Budget, v any) {
	switch v := v.(type) {
	case string:
		b.Bytes(len(v))
	case []any:
		b.Spend(len(v))
	case map[string]any:
		b.Spend(len(v))
	}
}

func hasType(b *limit.Budget, v any, t functions.JpType) (ok bool) {
	each := func(is func(any) bool) bool {
		list, ok := v.([]any)
		b.Spend(len(list))
		return ok && !slices.ContainsFunc(list, func(e any) bool { return !is(e) })
	}
	switch t {
	case functions.JpAny:
		_, isRef := v.(functions.ExpRef)
		return !isRef
	case functions.JpNumber:
		_, ok = limit.Float(v)
	case functions.JpString:
		_, ok = v.(string)
	case functions.JpObject:
		_, ok = v.(map[string]any)
	case functions.JpArray:
		_, ok = v.([]any)
	case functions.JpExpref:
		_, ok = v.(functions.ExpRef)
	case functions.JpArrayArray:
		return each(func(e any) bool { _, ok := e.([]any); return ok })
	case functions.JpArrayNumber:
		return each(func(e any) bool { _, ok := limit.Float(e); return ok })
	case functions.JpArrayString:
		return each(func(e any) bool { _, ok := e.(string); return ok })
	}
	return ok
}

func typeOf(v any) string {
	switch v.(type) {
	case float64, limit.Number:
		return "a number"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	case nil:
		return "null"
	}
	return "an expression"
}

func either(types []functions.JpType) string {
	words := make([]string, len(types))
	for i, t := range types {
		words[i] = string(t)
	}
	return strings.Join(words, " or ")
}

// costs holds functions whose work or result is not proportional to the size of
// their arguments. The cost is spent before the work is done.
var costs = map[string]func(b *limit.Budget, args []any){
	"to_string": func(b *limit.Budget, args []any) { b.Walk(args[0]) },
	"join": func(b *limit.Budget, args []any) {
		items := args[1].([]any)
		for _, e := range items {
			size(b, e)
		}
		b.Product(len(items), len(args[0].(string)))
	},
	"replace": func(b *limit.Budget, args []any) {
		b.Product(strings.Count(args[0].(string), args[1].(string)), len(args[2].(string)))
	},
	"pad_left":  pad,
	"pad_right": pad,
	"sort":      sorting,
	"max":       sorting,
	"min":       sorting,
	"zip":       func(b *limit.Budget, args []any) { b.Spend(16 * len(args)) },
}

func pad(b *limit.Budget, args []any) {
	if n, _ := limit.Float(args[1]); n > 0 {
		b.Spend(int(min(n, math.MaxInt32)))
	}
}

func sorting(b *limit.Budget, args []any) {
	list := args[0].([]any)
	for _, e := range list {
		size(b, e)
	}
	b.Spend(len(list) * bits.Len(uint(len(list))))
}

var jsonNumber = pattern.Of(`^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$`)

// owns replaces functions of the library: it panics on some arguments
// (contains, find_first, find_last), visits members in random order (keys,
// values, items), modifies its argument (sort_by), or accepts too much as a
// number (to_number).
var owns map[string]func(b *limit.Budget, args []any) (any, error)

func init() {
	owns = map[string]func(b *limit.Budget, args []any) (any, error){
		"contains":   contains,
		"find_first": func(_ *limit.Budget, args []any) (any, error) { return find(args, strings.Index) },
		"find_last":  func(_ *limit.Budget, args []any) (any, error) { return find(args, strings.LastIndex) },
		"keys": func(_ *limit.Budget, args []any) (any, error) {
			return each(args[0], func(k string, _ any) any { return k }), nil
		},
		"values": func(_ *limit.Budget, args []any) (any, error) {
			return each(args[0], func(_ string, v any) any { return v }), nil
		},
		"items": func(b *limit.Budget, args []any) (any, error) {
			b.Spend(2 * len(args[0].(map[string]any)))
			return each(args[0], func(k string, v any) any { return []any{k, v} }), nil
		},
		"sort_by": func(b *limit.Budget, args []any) (any, error) {
			list := slices.Clone(args[0].([]any))
			b.Spend(len(list) * bits.Len(uint(len(list))))
			return library("sort_by", []any{list, args[1]})
		},
		"to_number": func(_ *limit.Budget, args []any) (any, error) {
			switch v := args[0].(type) {
			case limit.Number:
				return v, nil
			case string:
				if !jsonNumber.RE().MatchString(v) {
					return nil, nil
				}
				if n := limit.NumberOf(v); n != math.Inf(1) && n != math.Inf(-1) {
					return n, nil
				}
				return nil, nil
			}
			return table["to_number"].Handler(args)
		},
	}
}

func each(object any, f func(k string, v any) any) any {
	m := object.(map[string]any)
	out := make([]any, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, f(k, m[k]))
	}
	return out
}

func contains(b *limit.Budget, args []any) (any, error) {
	switch where := args[0].(type) {
	case string:
		what, ok := args[1].(string)
		return ok && strings.Contains(where, what), nil
	case []any:
		for _, e := range where {
			if b.Equal(e, args[1]) {
				return true, nil
			}
		}
	}
	return false, nil
}

// find counts in code points. Its third and fourth arguments bound the part
// that is searched.
func find(args []any, index func(s, what string) int) (any, error) {
	text, what := []rune(args[0].(string)), args[1].(string)
	start, end := 0, len(text)
	for i, p := range []*int{&start, &end} {
		if len(args) <= 2+i {
			break
		}
		n, _ := limit.Float(args[2+i])
		if n != math.Trunc(n) {
			return nil, fmt.Errorf("argument %d must be an integer", 3+i)
		}
		*p = int(max(0, min(n, float64(len(text)))))
	}
	if len(text) == 0 || what == "" || start > end {
		return nil, nil
	}
	part := string(text[start:end])
	i := index(part, what)
	if i < 0 {
		return nil, nil
	}
	return float64(start + len([]rune(part[:i]))), nil
}
