package topology

import (
	"slices"
	"strconv"
	"strings"
)

// bond says how certainly one agent calls another.
type bond int

const (
	guarded bond = iota // when a condition holds
	free                // when its model wants
	sure                // each time
)

// call is an edge of the graph: one document calls another.
type call struct {
	to      int
	bond    bond
	pointer string
}

// calls returns the edges from a document to others.
func (g *group) calls(i int) []call {
	t := g.teams[i]
	if t == nil || t.o == nil {
		return nil
	}
	var out []call
	first := true // of a router: no member before takes every task
	add := func(m *member, b bond, pointer string) {
		found := g.resolve(i, m.ref)
		if len(found) > 1 {
			b = min(b, free)
		}
		for _, to := range found {
			if to != i { // an agent that calls itself is reported by its own check
				out = append(out, call{to, b, pointer})
			}
		}
	}
	for j := range t.members[:t.listed] {
		m := &t.members[j]
		if len(m.uses) == 0 || m.when == never && m.is(working) || !slices.ContainsFunc(m.uses, func(use string) bool { return use != receiving }) {
			continue
		}
		b := sure
		switch {
		case m.when == sometimes || !m.is(working) && (m.is(standingIn) || m.is(answering)):
			b = guarded
		case t.pattern == modelLed:
			b = free
		case t.pattern == router && m.is(working):
			if !first {
				continue
			}
			first = false
			if t.hasModel() && t.o.Subagents[j].When == nil {
				b, first = free, true
			}
		}
		add(m, b, m.pointer+"/ref")
	}
	for j := t.listed; j < len(t.members); j++ {
		if m := &t.members[j]; m.is(working) || m.is(refereeing) || m.is(merging) {
			add(m, sure, m.pointer)
		}
	}
	for j := range t.o.Handoff {
		h := &t.o.Handoff[j]
		when := momentOf(&h.Condition)
		if when == never {
			continue
		}
		b := map[moment]bond{always: sure, sometimes: guarded}[when]
		if m := t.lookup(h.TargetAgent); m != nil {
			add(m, b, at+"/handoff/"+strconv.Itoa(j)+"/target_agent")
		}
		if when == always {
			break // the rules after it are never used
		}
	}
	return out
}

// circles reports agents that call one another in an endless circle. A circle
// that contains a condition may end.
func (g *group) circles() {
	edges := make([][]call, len(g.teams))
	for i := range g.teams {
		edges[i] = g.calls(i)
	}
	reported := make(map[string]bool)
	for _, least := range []bond{sure, free} {
		for i := range g.teams {
			path := circle(edges, i, least)
			if path == nil || reported[g.around(path)] {
				continue
			}
			reported[g.around(path)] = true
			names := make([]string, 0, len(path)+1)
			for _, step := range path {
				names = append(names, g.sources[step.from].Name)
			}
			names = append(names, g.sources[i].Name)
			if t, round := g.teams[i], strings.Join(names, " → "); least == sure {
				t.fail(path[0].pointer, RuleLoop, "give one of them a condition, or break the circle", "these agents call one another without end: %s", round)
			} else {
				t.warn(path[0].pointer, RuleLoop, treeLimit, "these agents may call one another in a circle: %s", round)
			}
		}
	}
}

// hop is an edge with its start.
type hop struct {
	from int
	call
}

// around names a circle, in the same way wherever it is entered.
func (g *group) around(path []hop) string {
	var on []string
	for _, s := range path {
		on = append(on, strconv.Itoa(s.from))
	}
	slices.Sort(on)
	return strings.Join(on, ",")
}

// circle returns the shortest path from a document back to itself along edges
// of at least the given bond; nil if there is none.
func circle(edges [][]call, start int, least bond) []hop {
	came := make(map[int]hop) // the edge by which each document was first reached
	queue := []int{start}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, c := range edges[at] {
			if c.bond < least {
				continue
			}
			if c.to == start {
				path := []hop{{at, c}}
				for at != start {
					h := came[at]
					path = append(path, h)
					at = h.from
				}
				slices.Reverse(path)
				return path
			}
			if _, seen := came[c.to]; !seen {
				came[c.to] = hop{at, c}
				queue = append(queue, c.to)
			}
		}
	}
	return nil
}
