package tree

import (
	"cmp"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/intents"
)

// A Tree has the known facts about the tasks of one corr. Its JSON form is stable: members may be
// added, and existing ones keep their meaning.
type Tree struct {
	Corr       string    `json:"corr"`
	State      State     `json:"state"` // of the roots together
	Began      time.Time `json:"began,omitzero"`
	Ended      time.Time `json:"ended,omitzero"`
	DurationMS float64   `json:"duration_ms,omitempty"` // from the beginning to the end, or until now
	Tasks      Count     `json:"tasks"`
	Usage      *Usage    `json:"usage,omitempty"` // of all
	Critical   []string  `json:"critical,omitempty"`
	Unknown    []string  `json:"unknown,omitempty"` // descriptions of unknown facts
	Nodes      []*Node   `json:"nodes"`             // each before those below it

	Roots []*Node `json:"-"`

	index map[string]*Node
}

// A Node is one task.
type Node struct {
	ID     string `json:"id"`               // the task's; of a step without a task, the id above and the step's name
	Parent string `json:"parent,omitempty"` // the id of the node above; absent at a root
	Depth  int    `json:"depth"`
	Edge   Edge   `json:"edge,omitempty"` // how it follows from the node above

	Entity   string `json:"entity,omitempty"`
	Alias    string `json:"alias,omitempty"` // as the document above calls it
	Step     string `json:"step,omitempty"`  // the call's name within the task above
	Slot     *int   `json:"slot,omitempty"`
	Try      int    `json:"try,omitempty"`
	Lane     string `json:"lane,omitempty"` // live or durable; absent: not known
	Intent   string `json:"intent,omitempty"`
	Sender   string `json:"sender,omitempty"`
	Run      string `json:"run,omitempty"`
	Instance string `json:"instance,omitempty"` // the worker
	Epoch    uint64 `json:"epoch,omitempty"`    // how many owners the run has had
	Attempt  int    `json:"attempt,omitempty"`
	// TakenOver is how often, by events, another worker continued the task because the one before
	// had died or was stopped.
	TakenOver int `json:"taken_over,omitempty"`

	State   State  `json:"state"`
	Status  string `json:"status,omitempty"` // of a run that waits: paused, awaiting_approval, migrating
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	Then    string `json:"then,omitempty"` // the reaction to the failure above: retry, skip, fallback, fail

	Sent       time.Time `json:"sent,omitzero"`
	Began      time.Time `json:"began,omitzero"`
	Ended      time.Time `json:"ended,omitzero"`
	DurationMS float64   `json:"duration_ms,omitempty"`

	Usage *Usage `json:"usage,omitempty"`       // of this task alone
	Total *Usage `json:"usage_total,omitempty"` // with everything below it

	Pattern  string    `json:"pattern,omitempty"`  // the team's pattern
	Position *Position `json:"position,omitempty"` // by the last checkpoint
	Choices  []Choice  `json:"choices,omitempty"`
	WaitsFor string    `json:"waits_for,omitempty"` // the entity that the caller waits for: a person, or an agent that itself waits for one
	Until    string    `json:"until,omitempty"`
	HandedTo string    `json:"handed_to,omitempty"`

	Critical bool `json:"critical,omitempty"` // it is on the critical path of the node above

	Children []*Node `json:"-"`
}

// Edge is how a task follows from the one above it.
type Edge string

// The edges. The empty one is a call.
const (
	Called  Edge = ""
	Handoff Edge = "handoff" // it answers the sender of the one above
)

// Position is the position of a run in an orchestration (AAIF, Agent State).
type Position struct {
	Current   string   `json:"current_step,omitempty"`
	Completed []string `json:"completed_steps,omitempty"`
	Remaining []string `json:"remaining_steps,omitempty"`
	Subagent  string   `json:"current_subagent,omitempty"`
	Slot      int      `json:"parallel_slot,omitempty"`
}

// A Choice is a decision during the work on a task.
type Choice struct {
	What     string              `json:"what"` // routed, voted, merged, handed_off, escalated
	At       time.Time           `json:"at"`
	Alias    string              `json:"alias,omitempty"`
	To       string              `json:"to,omitempty"`
	By       string              `json:"by,omitempty"`
	Strategy string              `json:"strategy,omitempty"`
	Winner   string              `json:"winner,omitempty"`
	Votes    []intents.StepVotes `json:"votes,omitempty"`
	Scores   []intents.StepScore `json:"scores,omitempty"`
	Tied     bool                `json:"tied,omitempty"`
	Detail   string              `json:"detail,omitempty"`
}

// Tree makes the tree. now is the end, so far, of tasks that have not ended.
func (b *Builder) Tree(now time.Time) *Tree {
	t := &Tree{Corr: b.corr, Nodes: []*Node{}}
	b.link(t)
	seen := map[*Node]bool{}
	for _, root := range t.Roots {
		t.take(root, 0, seen)
	}
	for _, f := range b.order {
		// A cycle has no root: its first task becomes one.
		if n := t.index[f.id]; !seen[n] {
			n.Parent = ""
			t.Roots = append(t.Roots, n)
			t.take(n, 0, seen)
		}
	}
	t.settle(now)
	t.account()
	t.sum(now)
	t.critical()
	t.say(b)
	return t
}

// At returns the part of the tree below one task, as a tree with that root; nil if the tree does
// not have the task.
func (t *Tree) At(id string, now time.Time) *Tree {
	i := slices.IndexFunc(t.Nodes, func(n *Node) bool { return n.ID == id })
	if i < 0 {
		return nil
	}
	out := &Tree{Corr: t.Corr, Unknown: t.Unknown}
	var below func(n *Node) *Node
	below = func(n *Node) *Node {
		c := *n
		c.Depth -= t.Nodes[i].Depth
		c.Critical = false
		c.Children = make([]*Node, len(n.Children))
		out.Nodes = append(out.Nodes, &c)
		for j, child := range n.Children {
			c.Children[j] = below(child)
		}
		return &c
	}
	root := below(t.Nodes[i])
	root.Parent, root.Edge = "", Called
	out.Roots = []*Node{root}
	out.sum(now)
	out.critical()
	return out
}

// link makes the nodes and links them.
func (b *Builder) link(t *Tree) {
	nodes := make(map[string]*Node, len(b.order))
	all := make([]Node, len(b.order))
	for i, f := range b.order {
		all[i] = f.node()
		nodes[f.id] = &all[i]
	}
	t.index = nodes
	for i, f := range b.order {
		n := &all[i]
		above := nodes[f.parent]
		if above == nil {
			t.Roots = append(t.Roots, n)
			continue
		}
		n.Parent = f.parent
		above.Children = append(above.Children, n)
	}
	for i := range all {
		inOrder(all[i].Children)
	}
	inOrder(t.Roots)
}

// node returns the node of a task, without the facts that follow from other tasks.
func (f *facts) node() Node {
	n := Node{
		ID: f.id, Entity: f.entity, Alias: f.alias, Step: f.step, Slot: f.slot, Try: f.try, Intent: f.intent, Sender: f.sender, Run: f.run,
		Instance: f.instance, Epoch: f.epoch, Attempt: f.attempt, TakenOver: f.takenOver, Pattern: f.pattern, Position: f.position, Choices: f.choices, HandedTo: f.handedTo,
		Sent: f.caller.first, Began: f.own.first,
	}
	if f.handoff {
		n.Edge = Handoff
	}
	switch {
	case f.durable:
		n.Lane = "durable"
	case f.own.state != "" || f.caller.state != "":
		n.Lane = "live"
	}
	f.stand(&n)
	return n
}

// inOrder sorts siblings: by position if all have one, else by time.
func inOrder(nodes []*Node) {
	slots := !slices.ContainsFunc(nodes, func(n *Node) bool { return n.Slot == nil })
	slices.SortStableFunc(nodes, func(a, b *Node) int {
		if slots && *a.Slot != *b.Slot {
			return cmp.Compare(*a.Slot, *b.Slot)
		}
		return cmp.Or(a.first().Compare(b.first()), cmp.Compare(a.Try, b.Try))
	})
}

// first returns the earliest known time of a task.
func (n *Node) first() time.Time {
	switch {
	case n.Sent.IsZero() || !n.Began.IsZero() && n.Began.Before(n.Sent):
		return n.Began
	default:
		return n.Sent
	}
}

// take puts a node and everything below it into the list, each once.
func (t *Tree) take(n *Node, depth int, seen map[*Node]bool) {
	if seen[n] {
		return
	}
	seen[n] = true
	n.Depth = depth
	t.Nodes = append(t.Nodes, n)
	n.Children = slices.DeleteFunc(n.Children, func(c *Node) bool { return seen[c] })
	for _, c := range n.Children {
		t.take(c, depth+1, seen)
	}
}
