package jsonpath

import (
	"slices"
	"unicode/utf8"
)

// logical is an expression that is true or false for a current node (RFC 9535,
// section 2.3.5).
type logical interface {
	test(e *evaluation, current any) bool
}

// valued is an expression of type ValueType. An absent value is Nothing.
type valued interface {
	value(e *evaluation, current any) (v any, ok bool)
}

type (
	or         []logical
	and        []logical
	not        struct{ expr logical }
	existence  struct{ q *query }
	comparison struct {
		left, right valued
		op          string
	}
	literal  struct{ v any }
	singular struct{ q *query }
)

func (x or) test(e *evaluation, current any) bool {
	return slices.ContainsFunc(x, func(l logical) bool { return l.test(e, current) })
}

func (x and) test(e *evaluation, current any) bool {
	return !slices.ContainsFunc(x, func(l logical) bool { return !l.test(e, current) })
}

func (x not) test(e *evaluation, current any) bool { return !x.expr.test(e, current) }

func (x existence) test(e *evaluation, current any) bool { return x.q.exists(e, current) }

func (x literal) value(*evaluation, any) (any, bool) { return x.v, true }

func (x singular) value(e *evaluation, current any) (any, bool) { return x.q.one(e, current) }

// test compares by the rules of section 2.3.5.2.2. Nothing equals only Nothing;
// only numbers and texts can be ordered.
func (x comparison) test(e *evaluation, current any) bool {
	e.b.Spend(1)
	left, lok := x.left.value(e, current)
	right, rok := x.right.value(e, current)
	equal := func() bool { return lok == rok && (!lok || e.b.Equal(left, right)) }
	switch x.op {
	case "==":
		return equal()
	case "!=":
		return !equal()
	case "<":
		return less(e, left, right)
	case ">":
		return less(e, right, left)
	case "<=":
		return less(e, left, right) || equal()
	default:
		return less(e, right, left) || equal()
	}
}

func less(e *evaluation, left, right any) bool {
	switch l := left.(type) {
	case float64:
		r, ok := right.(float64)
		return ok && l < r
	case string:
		r, ok := right.(string)
		e.b.Bytes(len(l))
		return ok && l < r
	}
	return false
}

// The function extensions (RFC 9535, section 2.4).
type (
	lengthOf struct{ arg valued }
	countOf  struct{ q *query }
	valueOf  struct{ q *query }
	regex    struct {
		text, pattern valued
		whole         bool     // match, not search
		fixed         *iregexp // set if the pattern is a literal
	}
)

func (f lengthOf) value(e *evaluation, current any) (any, bool) {
	v, ok := f.arg.value(e, current)
	if !ok {
		return nil, false
	}
	switch v := v.(type) {
	case string:
		e.b.Bytes(len(v))
		return float64(utf8.RuneCountInString(v)), true
	case []any:
		return float64(len(v)), true
	case map[string]any:
		return float64(len(v)), true
	}
	return nil, false
}

func (f countOf) value(e *evaluation, current any) (any, bool) {
	n := 0
	f.q.each(e, current, func(any) bool { n++; return true })
	return float64(n), true
}

// value returns the value of the only node; for no node or several it is
// Nothing.
func (f valueOf) value(e *evaluation, current any) (v any, ok bool) {
	n := 0
	f.q.each(e, current, func(node any) bool {
		v = node
		n++
		return n < 2
	})
	return v, n == 1
}

func (f regex) test(e *evaluation, current any) bool {
	v, _ := f.text.value(e, current)
	text, ok := v.(string)
	if !ok {
		return false
	}
	p := f.fixed
	if p == nil {
		v, _ := f.pattern.value(e, current)
		source, ok := v.(string)
		if !ok {
			return false
		}
		p = e.pattern(source, f.whole)
	}
	return p.matches(e.b, text)
}

// pattern compiles a pattern that comes from the data, once in each evaluation.
func (e *evaluation) pattern(source string, whole bool) *iregexp {
	key := "s" + source
	if whole {
		key = "m" + source
	}
	p, ok := e.patterns[key]
	if !ok {
		e.b.Spend(100 + 20*len(source))
		p = compilePattern(source, whole)
		e.b.Spend(p.size())
		if e.patterns == nil {
			e.patterns = make(map[string]*iregexp)
		}
		e.patterns[key] = p
	}
	return p
}
