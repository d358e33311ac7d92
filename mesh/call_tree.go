package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
)

// Defaults of [TreeLimits].
const (
	DefaultMaxDepth = 16
	DefaultMaxTasks = 10_000
	// DefaultMaxIterations is as many turns as 1,000 agents take that all take 10.
	DefaultMaxIterations = 10_000
)

// TreeLimits bound a tree of tasks: one that somebody sent, and all that came of
// it because agents called one another. A sender may set lower bounds for his own
// tree (requires.tree), never higher ones.
type TreeLimits struct {
	// MaxDepth is how many hops a task may be away from the one that somebody
	// sent. Default 16.
	MaxDepth int `json:"max_depth"`
	// MaxTasks is how many tasks agents may send one another in one tree.
	// Workers that share [Config].Counters count together. Default 10,000.
	MaxTasks int64 `json:"max_tasks"`
	// MaxIterations is how many turns all agents together may take for the tasks
	// of one tree; see [Task.Turn]. Default 10,000.
	MaxIterations int64 `json:"max_iterations"`

	// Tokens and USD are what the models of a tree may use, written into the tasks
	// that agents send on, so that it holds at every worker. Default no bound. A
	// worker's own budget is for its agents to keep.
	Tokens int64     `json:"-"`
	USD    model.USD `json:"-"`
}

func (l TreeLimits) normal() (TreeLimits, error) {
	if err := l.Validate(); err != nil {
		return l, err
	}
	if l.MaxDepth == 0 {
		l.MaxDepth = DefaultMaxDepth
	}
	if l.MaxTasks == 0 {
		l.MaxTasks = DefaultMaxTasks
	}
	if l.MaxIterations == 0 {
		l.MaxIterations = DefaultMaxIterations
	}
	return l, nil
}

// Validate reports what is wrong with the bounds.
func (l TreeLimits) Validate() error {
	if l.MaxDepth < 0 || l.MaxTasks < 0 || l.MaxIterations < 0 || l.Tokens < 0 || l.USD < 0 {
		return errors.New("tree: a bound cannot be negative")
	}
	return nil
}

// tree is what requires.tree says: where in its tree a task is, and how far the
// tree may grow. A sender's own task has bounds only; 0 is the operator's.
type tree struct {
	Root          string        `json:"root,omitempty"`           // the id of the task that somebody sent
	Key           string        `json:"key,omitempty"`            // of the tree's counters: unknown to those who do not work on it
	Depth         int           `json:"depth,omitempty"`          // hops from there
	MaxDepth      int           `json:"max_depth,omitempty"`      //
	MaxTasks      int64         `json:"max_tasks,omitempty"`      // of the tree
	MaxIterations int64         `json:"max_iterations,omitempty"` // of the tree
	Teams         []team        `json:"teams,omitempty"`          // whose document bounds its part of the tree, the outermost first
	Tokens        int64         `json:"tokens,omitempty"`         // of the tree, and of an agent for the corr
	USD           model.USD     `json:"usd,omitempty"`            // likewise
	Deadline      time.Time     `json:"deadline,omitzero"`        // by the server's clock
	Waiting       []waitingTask `json:"waiting,omitempty"`        // the tasks above that wait for this one, the outermost first
}

// readTree reads requires.tree; nil where there is none. A bound that is written is
// positive: in a [tree], 0 is one that is absent.
func readTree(raw json.RawMessage) (*tree, error) {
	if raw == nil {
		return nil, nil
	}
	var t *tree
	var w struct {
		MaxDepth      *int       `json:"max_depth"`
		MaxTasks      *int64     `json:"max_tasks"`
		MaxIterations *int64     `json:"max_iterations"`
		Tokens        *int64     `json:"tokens"`
		USD           *model.USD `json:"usd"`
	}
	err := errors.Join(json.Unmarshal(raw, &t), json.Unmarshal(raw, &w))
	if isZero(w.MaxDepth) || isZero(w.MaxTasks) || isZero(w.MaxIterations) || isZero(w.Tokens) || isZero(w.USD) {
		return nil, envelope.Errorf(envelope.CodeRequires, "requires.tree: a bound is more than 0; one that is absent does not bound")
	}
	if err != nil || t != nil && (t.Depth < 0 || t.MaxDepth < 0 || t.MaxTasks < 0 || t.MaxIterations < 0 || t.Tokens < 0 || t.USD < 0 || len(t.Root) > maxName || len(t.Key) > maxTreeKey || badTeams(t.Teams) || badWaiting(t.Waiting)) {
		return nil, envelope.Errorf(envelope.CodeRequires, "requires.tree is no description of a tree of tasks")
	}
	return t, nil
}

// maxTreeKey bounds the key of a tree's counters, in bytes.
const maxTreeKey = 64

func badTeams(teams []team) bool {
	return len(teams) > maxTeams || slices.ContainsFunc(teams, func(b team) bool { return b.Task == "" || len(b.Task) > maxName || b.MaxIterations <= 0 })
}

func isZero[N int | int64 | model.USD](n *N) bool { return n != nil && *n == 0 }

// lower is what holds of two bounds of which 0 is none.
func lower[N int | int64 | model.USD](a, b N) N {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// bounds are what holds for a tree here: what its tasks say can only lower what the
// operator says. t may be nil.
func (n *Node) bounds(t *tree) tree {
	own := n.cfg.Tree
	out := tree{MaxDepth: own.MaxDepth, MaxTasks: own.MaxTasks, MaxIterations: own.MaxIterations, Tokens: own.Tokens, USD: own.USD}
	if t != nil {
		out.Root, out.Key, out.Depth, out.Deadline, out.Waiting = t.Root, t.Key, t.Depth, t.Deadline, t.Waiting
		out.MaxDepth, out.MaxTasks = lower(t.MaxDepth, out.MaxDepth), lower(t.MaxTasks, out.MaxTasks)
		out.MaxIterations = lower(t.MaxIterations, out.MaxIterations)
		out.Tokens, out.USD = lower(t.Tokens, out.Tokens), lower(t.USD, out.USD)
	}
	return out
}

// inTree reads what a task says of its tree, and refuses one that is beyond its
// bounds.
func (n *Node) inTree(t *Task) (err error) {
	if t.tree, err = readTree(t.required(requireTree)); err != nil || t.tree == nil {
		return err
	}
	if most := n.bounds(t.tree).MaxDepth; t.tree.Depth > most {
		return tooDeep(t.tree.Depth, most)
	}
	if t.tree.Deadline.IsZero() || t.run != nil && t.run.retryID() != "" { // a dead letter has a deadline of its own
		return nil
	}
	return t.within(t.tree.Deadline)
}

// within lets a task end by the deadline of its tree. A worker that does not know
// the server's clock allows for as much as clocks may differ.
func (t *Task) within(deadline time.Time) error {
	n, l := t.host.node, t.host.joined()
	switch {
	case t.run != nil:
		t.run.deadline = earlier(t.run.deadline, deadline)
		t.Deadline = earlier(t.Deadline, l.clock.local(deadline))
		return nil // who claims the run looks at the clock
	case l != nil:
		deadline = l.clock.local(deadline)
	case n.cfg.Skew > 0:
		deadline = deadline.Add(n.cfg.Skew)
	default:
		return nil
	}
	if !deadline.After(t.queued) {
		return envelope.Errorf(envelope.CodeTimeout, "the deadline of the tree that the task belongs to has passed")
	}
	t.Deadline = earlier(t.Deadline, deadline)
	return nil
}

func tooDeep(depth, most int) *envelope.Error {
	return envelope.Errorf(envelope.CodeTreeLimit, "the task would be %d hops away from the one that began its tree, and %d are allowed", depth, most)
}

// inherit writes into the members of requires what a task that t sends on has
// from it: human_approval, and its place in the tree, one hop further, below t if
// that waits for it. It fails where there is no room for that.
func (t *Task) inherit(members map[string]json.RawMessage, waits bool) error {
	next := t.host.node.bounds(t.tree)
	if next.Root == "" {
		next.Root = t.Envelope.ID
	}
	next.Key = t.treeKey()
	if waits {
		next.Waiting = t.waitedFor()
	}
	if next.Teams = t.teams(); len(next.Teams) > maxTeams {
		return envelope.Errorf(envelope.CodeTreeLimit, "more than %d teams within one another bound their turns", maxTeams)
	}
	next.Depth++
	if next.Depth > next.MaxDepth {
		return tooDeep(next.Depth, next.MaxDepth)
	}
	if l := t.host.joined(); next.Deadline.IsZero() && l != nil {
		end := l.clock.at(t.Deadline)
		if t.run != nil {
			end = t.run.deadline
		}
		next.Deadline = end.UTC().Truncate(time.Millisecond)
	}
	members[requireTree] = mustJSON(next)
	if t.Requires.HumanApproval {
		members["human_approval"] = json.RawMessage("true")
	}
	return nil
}

// TreeBudget is what the models of the task's tree may use, as far as its senders
// and this node's operator say; 0: no bound. An agent that pays for models holds
// the counters [CountTokens] and [CountUSD] of [Task.Counters] against it.
func (t *Task) TreeBudget() (tokens int64, usd model.USD) {
	if t.host == nil {
		return 0, 0 // no worker has taken it in
	}
	b := t.host.node.bounds(t.tree)
	return b.Tokens, b.USD
}

// MaxMessage is how many bytes a message takes here, headers included: the server's
// max_payload. 0: it is not known.
func (t *Task) MaxMessage() int {
	if t.host == nil {
		return 0
	}
	return int(t.host.node.conn.MaxPayload())
}

// hop reports whether the task says that it belongs to a tree.
func (t *Task) hop() bool { return t.Envelope.ReplyTo != "" || t.tree != nil }

// admitHop is what an arriving task is held against that a look into it does not
// tell. A hop without requires.tree was sent on by somebody who does not count, so
// it is counted here. It asks the mesh's counters, but only about tasks of trees.
func (h *host) admitHop(ctx context.Context, t *Task) error {
	if t.Envelope.ReplyTo != "" && t.tree == nil {
		if err := h.node.countTask(ctx, t); err != nil {
			return err
		}
	}
	return h.node.solvent(ctx, t)
}
