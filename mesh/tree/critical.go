package tree

import (
	"cmp"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
)

// critical marks the tasks on the critical path. From the end of a task backwards these are: the
// child that ended last, then the child that ended last before that one began, and so on; and the
// same within each of these children.
func (t *Tree) critical() {
	for _, root := range t.Roots {
		root.waitedFor()
	}
	for _, n := range t.longest() {
		t.Critical = append(t.Critical, n.ID)
	}
}

// longest returns the leaves of the critical path, in the order in which they began.
func (t *Tree) longest() (out []*Node) {
	for _, n := range t.Nodes {
		if n.Critical && len(n.Children) == 0 {
			out = append(out, n)
		}
	}
	slices.SortStableFunc(out, func(a, b *Node) int { return a.first().Compare(b.first()) })
	return out
}

// far is the end of a task that has not ended.
var far = time.Unix(1<<40, 0)

func (n *Node) end() time.Time {
	switch {
	case n.State == Unknown, n.State == Withdrawn:
		return time.Time{}
	case n.State == Failed && n.Code == string(envelope.CodeCancelled) && n.Then == intents.ThenSkip:
		return time.Time{} // its caller went on without it
	case n.State.Ended():
		return n.Ended
	}
	return far
}

func (n *Node) waitedFor() {
	n.Critical = true
	below := slices.Clone(n.Children)
	slices.SortStableFunc(below, func(a, b *Node) int { return cmp.Or(b.end().Compare(a.end()), b.first().Compare(a.first())) })
	before := far
	for _, c := range below {
		if end := c.end(); end.IsZero() || end.After(before) {
			continue
		}
		before = c.first()
		c.waitedFor()
	}
}
