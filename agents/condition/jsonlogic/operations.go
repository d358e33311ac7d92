package jsonlogic

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/aeemesh/aeemesh/agents/condition/limit"
)

// operation is an operator whose arguments have been evaluated.
type operation func(b *limit.Budget, data any, args []any) any

var operations map[string]operation

func init() {
	operations = map[string]operation{
		"var": func(b *limit.Budget, data any, args []any) any { return variable(b, data, args) },
		"missing": func(b *limit.Budget, data any, args []any) any {
			if keys, ok := at(args, 0).([]any); ok {
				args = keys
			}
			return missing(b, data, args)
		},
		"missing_some": missingSome,
		"==":           func(b *limit.Budget, _ any, a []any) any { return looselyEqual(b, at(a, 0), at(a, 1)) },
		"!=":           func(b *limit.Budget, _ any, a []any) any { return !looselyEqual(b, at(a, 0), at(a, 1)) },
		"===":          func(b *limit.Budget, _ any, a []any) any { return strictlyEqual(at(a, 0), at(a, 1)) },
		"!==":          func(b *limit.Budget, _ any, a []any) any { return !strictlyEqual(at(a, 0), at(a, 1)) },
		">":            func(b *limit.Budget, _ any, a []any) any { return less(b, at(a, 1), at(a, 0), false) },
		">=":           func(b *limit.Budget, _ any, a []any) any { return less(b, at(a, 1), at(a, 0), true) },
		"<":            func(b *limit.Budget, _ any, a []any) any { return between(b, a, false) },
		"<=":           func(b *limit.Budget, _ any, a []any) any { return between(b, a, true) },
		"!":            func(_ *limit.Budget, _ any, a []any) any { return !truthy(at(a, 0)) },
		"!!":           func(_ *limit.Budget, _ any, a []any) any { return truthy(at(a, 0)) },
		"log":          func(_ *limit.Budget, _ any, a []any) any { return at(a, 0) },
		"+":            sum,
		"*":            product,
		"-": func(b *limit.Budget, _ any, a []any) any {
			if len(a) < 2 {
				return -toNumber(b, at(a, 0))
			}
			return toNumber(b, a[0]) - toNumber(b, a[1])
		},
		"/": func(b *limit.Budget, _ any, a []any) any { return toNumber(b, at(a, 0)) / toNumber(b, at(a, 1)) },
		"%": func(b *limit.Budget, _ any, a []any) any {
			return math.Mod(toNumber(b, at(a, 0)), toNumber(b, at(a, 1)))
		},
		"max":    func(b *limit.Budget, _ any, a []any) any { return extreme(b, a, math.Inf(-1), math.Max) },
		"min":    func(b *limit.Budget, _ any, a []any) any { return extreme(b, a, math.Inf(1), math.Min) },
		"merge":  merge,
		"in":     in,
		"cat":    cat,
		"substr": substr,
	}
}

// undefined is JavaScript's undefined: the value of a missing argument. Most
// operators treat it like null; a rule cannot write it.
type undefined struct{}

func at(args []any, i int) any {
	if i < len(args) {
		return args[i]
	}
	return undefined{}
}

// variable implements var: a path with dots, and a default if nothing is found.
func variable(b *limit.Budget, data any, args []any) any {
	var otherwise any
	if len(args) > 1 {
		otherwise = args[1]
	}
	var path string
	switch p := at(args, 0).(type) {
	case undefined, nil:
		return data
	case string:
		path = p
	default:
		path = toText(b, p)
	}
	if path == "" {
		return data
	}
	b.Bytes(len(path))
	for step := range strings.SplitSeq(path, ".") {
		b.Spend(1)
		var ok bool
		switch d := data.(type) {
		case map[string]any:
			data, ok = d[step]
		case []any:
			if i, bad := strconv.Atoi(step); bad == nil && i >= 0 && i < len(d) && strconv.Itoa(i) == step {
				data, ok = d[i], true
			}
		}
		if !ok {
			return otherwise
		}
	}
	return data
}

func missing(b *limit.Budget, data any, keys []any) any {
	out := []any{}
	for _, k := range keys {
		b.Spend(1)
		if v := variable(b, data, []any{k}); v == nil || v == "" {
			out = append(out, k)
		}
	}
	return out
}

// missingSome returns an empty list if at least so many of the keys are
// present.
func missingSome(b *limit.Budget, data any, args []any) any {
	keys, ok := at(args, 1).([]any)
	if !ok {
		return []any{}
	}
	lacking := missing(b, data, keys).([]any)
	if float64(len(keys)-len(lacking)) >= toNumber(b, at(args, 0)) {
		return []any{}
	}
	return lacking
}

// between implements < and <=, which accept a third argument.
func between(b *limit.Budget, args []any, orEqual bool) any {
	if !less(b, at(args, 0), at(args, 1), orEqual) {
		return false
	}
	return len(args) < 3 || less(b, args[1], args[2], orEqual)
}

func sum(b *limit.Budget, _ any, args []any) any {
	total := 0.0
	for _, a := range args {
		total += parseFloat(b, a)
	}
	return total
}

// product returns a single argument unchanged, as in the reference
// implementation.
func product(b *limit.Budget, _ any, args []any) any {
	if len(args) == 1 {
		return args[0]
	}
	total := 1.0
	for _, a := range args {
		total *= parseFloat(b, a)
	}
	return total
}

func extreme(b *limit.Budget, args []any, start float64, pick func(x, y float64) float64) any {
	for _, a := range args {
		n := toNumber(b, a)
		if math.IsNaN(n) || math.IsNaN(start) {
			n, start = math.NaN(), math.NaN() // JavaScript's rule for NaN beside an infinity, which differs from Go's
		}
		start = pick(start, n)
	}
	return start
}

func merge(b *limit.Budget, _ any, args []any) any {
	n := 0
	for _, a := range args {
		if l, ok := a.([]any); ok {
			n += len(l)
		} else {
			n++
		}
	}
	b.Spend(n)
	out := make([]any, 0, n)
	for _, a := range args {
		if l, ok := a.([]any); ok {
			out = append(out, l...)
		} else {
			out = append(out, a)
		}
	}
	return out
}

func in(b *limit.Budget, _ any, args []any) any {
	switch where := at(args, 1).(type) {
	case string:
		what := toText(b, at(args, 0))
		b.Bytes(len(where) + len(what))
		return strings.Contains(where, what)
	case []any:
		for _, e := range where {
			b.Spend(1)
			if strictlyEqual(e, at(args, 0)) {
				return true
			}
		}
	}
	return false
}

// cat joins the texts of its arguments.
func cat(b *limit.Budget, _ any, args []any) any {
	parts := make([]string, len(args))
	for i, a := range args {
		if !absent(a) {
			parts[i] = toText(b, a)
		}
		b.Bytes(len(parts[i]))
	}
	return strings.Join(parts, "")
}

// substr counts in UTF-16, as JavaScript does. A negative start counts from the
// end; a negative length leaves out so many units at the end.
func substr(b *limit.Budget, _ any, args []any) any {
	s := toText(b, at(args, 0))
	b.Bytes(4 * len(s))
	units := utf16.Encode([]rune(s))
	start := clamp(toNumber(b, at(args, 1)), len(units))
	rest := units[start:]
	if len(args) < 3 {
		return string(utf16.Decode(rest))
	}
	n := toNumber(b, args[2])
	if n < 0 {
		n = max(0, float64(len(rest))+n)
	}
	return string(utf16.Decode(rest[:clamp(n, len(rest))]))
}

// clamp converts a number to an index; a negative one counts from the end.
func clamp(f float64, length int) int {
	switch {
	case math.IsNaN(f):
		return 0
	case f < 0:
		return int(max(0, float64(length)+math.Trunc(f)))
	}
	return int(min(math.Trunc(f), float64(length)))
}
