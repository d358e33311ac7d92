package jsonpath

import (
	"maps"
	"slices"

	"github.com/aeemesh/aeemesh/agents/condition/limit"
)

// Query is a compiled JSONPath query.
type Query struct{ q *query }

// Compile parses a query.
func Compile(text string) (*Query, error) {
	q, err := parse(text)
	if err != nil {
		return nil, err
	}
	return &Query{q}, nil
}

// Exists reports whether the query selects at least one node of the value,
// which is JSON as package encoding/json decodes it.
func (q *Query) Exists(b *limit.Budget, value any) (bool, error) {
	return q.q.exists(&evaluation{b: b, root: value}, value), nil
}

// evaluation is one run of a query.
type evaluation struct {
	b        *limit.Budget
	root     any
	patterns map[string]*iregexp // of match and search, if the pattern comes from the data
}

// query is a root query ($) or one relative to the current node (@).
type query struct {
	relative bool
	segments []segment
}

// singular reports whether the form of the query permits at most one node (RFC
// 9535, section 2.3.5.1).
func (q *query) singular() bool {
	for _, s := range q.segments {
		if s.descendant || len(s.selectors) != 1 {
			return false
		}
		switch s.selectors[0].(type) {
		case name, index:
		default:
			return false
		}
	}
	return true
}

func (q *query) each(e *evaluation, current any, yield func(any) bool) bool {
	if !q.relative {
		current = e.root
	}
	return visit(e, q.segments, current, yield)
}

func (q *query) exists(e *evaluation, current any) bool {
	return !q.each(e, current, func(any) bool { return false })
}

// one returns the node of a singular query.
func (q *query) one(e *evaluation, current any) (node any, ok bool) {
	q.each(e, current, func(n any) bool {
		node, ok = n, true
		return false
	})
	return node, ok
}

// segment is a child or a descendant segment.
type segment struct {
	descendant bool
	selectors  []selector
}

// selector calls yield with the children of a node that it selects. It returns
// false if yield did.
type selector interface {
	children(e *evaluation, node any, yield func(any) bool) bool
}

// visit calls yield with the nodes that the segments select, one at a time. It
// returns false if yield did.
func visit(e *evaluation, segments []segment, node any, yield func(any) bool) bool {
	e.b.Spend(1)
	if len(segments) == 0 {
		return yield(node)
	}
	s, rest := &segments[0], segments[1:]
	next := func(child any) bool { return visit(e, rest, child, yield) }
	for _, sel := range s.selectors {
		if !sel.children(e, node, next) {
			return false
		}
	}
	if !s.descendant {
		return true
	}
	return eachChild(e, node, func(child any) bool { return visit(e, segments, child, yield) })
}

func eachChild(e *evaluation, node any, yield func(any) bool) bool {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			if !yield(child) {
				return false
			}
		}
	case map[string]any:
		e.b.Spend(len(node))
		for _, k := range slices.Sorted(maps.Keys(node)) {
			if !yield(node[k]) {
				return false
			}
		}
	}
	return true
}

// The selectors (RFC 9535, section 2.3).
type (
	name     string
	wildcard struct{}
	index    int64
	slice    struct{ start, end, step *int64 }
	filter   struct{ expr logical }
)

func (s name) children(e *evaluation, node any, yield func(any) bool) bool {
	if m, ok := node.(map[string]any); ok {
		if child, ok := m[string(s)]; ok {
			return yield(child)
		}
	}
	return true
}

func (wildcard) children(e *evaluation, node any, yield func(any) bool) bool {
	return eachChild(e, node, yield)
}

func (s index) children(_ *evaluation, node any, yield func(any) bool) bool {
	list, _ := node.([]any)
	i := int64(s)
	if i < 0 {
		i += int64(len(list))
	}
	if i < 0 || i >= int64(len(list)) {
		return true
	}
	return yield(list[i])
}

// children visits the elements of a slice by the rules of section 2.3.4.2.2.
func (s slice) children(e *evaluation, node any, yield func(any) bool) bool {
	list, ok := node.([]any)
	if !ok {
		return true
	}
	n, step := int64(len(list)), int64(1)
	if s.step != nil {
		step = *s.step
	}
	bound := func(p *int64, otherwise, low, high int64) int64 {
		if p == nil {
			return otherwise
		}
		i := *p
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	switch {
	case step > 0:
		for i, end := bound(s.start, 0, 0, n), bound(s.end, n, 0, n); i < end; i += step {
			if !yield(list[i]) {
				return false
			}
		}
	case step < 0:
		for i, end := bound(s.start, n-1, -1, n-1), bound(s.end, -1, -1, n-1); i > end; i += step {
			if !yield(list[i]) {
				return false
			}
		}
	}
	return true
}

func (s filter) children(e *evaluation, node any, yield func(any) bool) bool {
	return eachChild(e, node, func(child any) bool {
		e.b.Spend(1)
		return !s.expr.test(e, child) || yield(child)
	})
}
