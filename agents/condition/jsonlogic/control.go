package jsonlogic

import "github.com/aeemesh/aeemesh/agents/condition/limit"

// control is an operator that decides which of its arguments are evaluated, and
// on which data.
type control func(b *limit.Budget, data any, args []node) any

type controlled struct {
	f    control
	args []node
}

func (c controlled) eval(b *limit.Budget, data any) any {
	b.Spend(1)
	return c.f(b, data, c.args)
}

var controls map[string]func([]node) node

func init() {
	controls = make(map[string]func([]node) node)
	for name, f := range map[string]control{
		"if": choose, "?:": choose, "and": and, "or": or,
		"map": mapped, "filter": filtered, "reduce": reduced, "all": all, "some": some, "none": none,
	} {
		controls[name] = func(args []node) node { return controlled{f, args} }
	}
}

// arg evaluates argument i; a missing argument is undefined.
func arg(b *limit.Budget, data any, args []node, i int) any {
	if i >= len(args) {
		return undefined{}
	}
	return args[i].eval(b, data)
}

// choose implements if, else if, …, else.
func choose(b *limit.Budget, data any, args []node) any {
	i := 0
	for ; i+1 < len(args); i += 2 {
		if truthy(args[i].eval(b, data)) {
			return args[i+1].eval(b, data)
		}
	}
	if i >= len(args) {
		return nil
	}
	return args[i].eval(b, data)
}

func and(b *limit.Budget, data any, args []node) any {
	var v any = undefined{}
	for _, n := range args {
		if v = n.eval(b, data); !truthy(v) {
			break
		}
	}
	return v
}

func or(b *limit.Budget, data any, args []node) any {
	var v any = undefined{}
	for _, n := range args {
		if v = n.eval(b, data); truthy(v) {
			break
		}
	}
	return v
}

func mapped(b *limit.Budget, data any, args []node) any {
	items, _ := arg(b, data, args, 0).([]any)
	out := make([]any, 0, len(items))
	for _, e := range items {
		b.Spend(1)
		out = append(out, arg(b, e, args, 1))
	}
	return out
}

func filtered(b *limit.Budget, data any, args []node) any {
	items, _ := arg(b, data, args, 0).([]any)
	out := []any{}
	for _, e := range items {
		b.Spend(1)
		if truthy(arg(b, e, args, 1)) {
			out = append(out, e)
		}
	}
	return out
}

func reduced(b *limit.Budget, data any, args []node) any {
	items, ok := arg(b, data, args, 0).([]any)
	var acc any
	if len(args) > 2 {
		acc = args[2].eval(b, data)
	}
	if !ok {
		return acc
	}
	for _, e := range items {
		b.Spend(4)
		acc = arg(b, map[string]any{"current": e, "accumulator": acc}, args, 1)
	}
	return acc
}

// all is false for an empty list, as in the reference implementation.
func all(b *limit.Budget, data any, args []node) any {
	items, _ := arg(b, data, args, 0).([]any)
	for _, e := range items {
		b.Spend(1)
		if !truthy(arg(b, e, args, 1)) {
			return false
		}
	}
	return len(items) > 0
}

func some(b *limit.Budget, data any, args []node) any {
	items, _ := arg(b, data, args, 0).([]any)
	for _, e := range items {
		b.Spend(1)
		if truthy(arg(b, e, args, 1)) {
			return true
		}
	}
	return false
}

func none(b *limit.Budget, data any, args []node) any { return some(b, data, args) == false }
