package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// Defaults of [TreeLimits].
const (
	DefaultMaxDepth = 16
	DefaultMaxTasks = 10_000
	// DefaultMaxIterations allows 10 turns for each of 1,000 agents.
	DefaultMaxIterations = 10_000
)

// TreeLimits bound a tree of tasks: a root task and all tasks that agents sent for it. A
// sender may set lower bounds for its own tree (requires.tree), never higher ones.
type TreeLimits struct {
	// MaxDepth is the largest number of hops between the root task and any task of
	// the tree. Default 16.
	MaxDepth int `json:"max_depth"`
	// MaxTasks is how many tasks agents may send one another in one tree.
	// Workers that share [Config].Counters count together. Default 10,000.
	MaxTasks int64 `json:"max_tasks"`
	// MaxIterations is how many turns all agents together may take for the tasks
	// of one tree; see [Task.Turn]. Default 10,000.
	MaxIterations int64 `json:"max_iterations"`

	// Tokens and USD bound the model usage of a tree. They are written into every hop, so
	// every worker enforces them. Default: no bound. The budget of a single worker is not
	// enforced here but by its agents.
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

// Validate returns an error if a bound is negative.
func (l TreeLimits) Validate() error {
	if l.MaxDepth < 0 || l.MaxTasks < 0 || l.MaxIterations < 0 || l.Tokens < 0 || l.USD < 0 {
		return errors.New("tree: a bound cannot be negative")
	}
	return nil
}

// tree is requires.tree: the position of a task in its tree, and the bounds of the tree. A
// root task has bounds only. A bound of 0 means: the operator's bound.
type tree struct {
	Root          string        `json:"root,omitempty"`           // the id of the root task
	Key           string        `json:"key,omitempty"`            // of the tree's counters: only agents that work on the tree know it
	Depth         int           `json:"depth,omitempty"`          // hops from the root task
	MaxDepth      int           `json:"max_depth,omitempty"`      //
	MaxTasks      int64         `json:"max_tasks,omitempty"`      // of the tree
	MaxIterations int64         `json:"max_iterations,omitempty"` // of the tree
	Teams         []team        `json:"teams,omitempty"`          // each bounds the turns of its part of the tree; the outermost first
	Tokens        int64         `json:"tokens,omitempty"`         // of the tree, and of each agent for the corr
	USD           model.USD     `json:"usd,omitempty"`            // likewise
	Deadline      time.Time     `json:"deadline,omitzero"`        // by the server's clock
	Waiting       []waitingTask `json:"waiting,omitempty"`        // the tasks that wait for this one, the outermost first
}

// readTree reads requires.tree. It returns nil if there is none. A bound in the JSON must be
// positive; in a [tree], 0 means that the bound is absent.
func readTree(raw json.RawMessage) (*tree, error) {
	if raw == nil {
		return nil, nil
	}
	var w *struct {
		tree
		MaxDepth      *int       `json:"max_depth"` // in the place of tree's own
		MaxTasks      *int64     `json:"max_tasks"`
		MaxIterations *int64     `json:"max_iterations"`
		Tokens        *int64     `json:"tokens"`
		USD           *model.USD `json:"usd"`
	}
	err := json.Unmarshal(raw, &w)
	if w == nil && err == nil {
		return nil, nil
	}
	if w == nil {
		return nil, envelope.Errorf(envelope.CodeRequires, "requires.tree is not valid")
	}
	if isZero(w.MaxDepth) || isZero(w.MaxTasks) || isZero(w.MaxIterations) || isZero(w.Tokens) || isZero(w.USD) {
		return nil, envelope.Errorf(envelope.CodeRequires, "requires.tree: a bound must be greater than 0; leave it out for no bound")
	}
	t := &w.tree
	t.MaxDepth, t.MaxTasks, t.MaxIterations = value(w.MaxDepth), value(w.MaxTasks), value(w.MaxIterations)
	t.Tokens, t.USD = value(w.Tokens), value(w.USD)
	if err != nil || t.Depth < 0 || t.MaxDepth < 0 || t.MaxTasks < 0 || t.MaxIterations < 0 || t.Tokens < 0 || t.USD < 0 || len(t.Root) > wire.MaxName || len(t.Key) > maxTreeKey || badTeams(t.Teams) || badWaiting(t.Waiting) {
		return nil, envelope.Errorf(envelope.CodeRequires, "requires.tree is not valid")
	}
	return t, nil
}

// maxTreeKey bounds the key of a tree's counters, in bytes.
const maxTreeKey = 64

func badTeams(teams []team) bool {
	return len(teams) > maxTeams || slices.ContainsFunc(teams, func(b team) bool { return b.Task == "" || len(b.Task) > wire.MaxName || b.MaxIterations <= 0 })
}

func isZero[N int | int64 | model.USD](n *N) bool { return n != nil && *n == 0 }

// value returns what n points to, 0 for nil.
func value[N int | int64 | model.USD](n *N) (v N) {
	if n != nil {
		v = *n
	}
	return v
}

// lower returns the lower of two bounds; 0 means no bound.
func lower[N int | int64 | model.USD](a, b N) N {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// bounds returns the bounds of a tree at this node: the operator's, lowered by those in
// requires.tree. t may be nil.
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

// checkTree reads requires.tree. It refuses a task that is deeper in its tree than allowed, or
// whose tree's deadline has passed.
func checkTree(t *Task) (err error) {
	if t.tree, err = readTree(t.required(requires.Tree)); err != nil || t.tree == nil {
		return err
	}
	if most := t.host.node.bounds(t.tree).MaxDepth; t.tree.Depth > most {
		return tooDeep(t.tree.Depth, most)
	}
	if t.tree.Deadline.IsZero() || t.run != nil && t.run.hold.retryID() != "" { // a retried dead letter has a deadline of its own
		return nil
	}
	return t.limitTo(t.tree.Deadline)
}

// limitTo limits the task's deadline to the deadline of its tree. A worker without the server's
// clock adds Config.Skew to the tree's deadline; if Skew is off, it ignores that deadline.
func (t *Task) limitTo(deadline time.Time) error {
	n, l := t.host.node, t.host.joined()
	switch {
	case t.run != nil:
		t.run.deadline = earlier(t.run.deadline, deadline)
		t.Deadline = earlier(t.Deadline, l.clock.local(deadline))
		return nil // the claim of the run checks the deadline
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
	return envelope.Errorf(envelope.CodeTreeLimit, "the task would be %d hops away from the root task of its tree, and %d are allowed", depth, most)
}

// inherit sets the members of requires that a hop gets from t: human_approval and tree, with
// the hop's position in the tree. If waits is true, tree names t as a task that waits for the
// hop. inherit fails with E_TREE_LIMIT if the hop is too deep, or is in too many teams.
func (t *Task) inherit(members map[string]json.RawMessage, waits bool) error {
	next := t.host.node.bounds(t.tree)
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
	if next.Teams = (turnCount{t}).teams(); len(next.Teams) > maxTeams {
		return envelope.Errorf(envelope.CodeTreeLimit, "more than %d nested teams", maxTeams)
	}
	was := t.inherited.Load()
	if was == nil || was.waits != waits || !was.deadline.Equal(next.Deadline) || !slices.Equal(was.teams, next.Teams) {
		if next.Root == "" {
			next.Root = t.Envelope.ID
		}
		next.Key = t.treeKey()
		if waits {
			next.Waiting = t.waiters()
		}
		was = &inherited{waits, next.Deadline, next.Teams, wire.MustJSON(next)}
		t.inherited.Store(was)
	}
	members[requires.Tree] = was.raw
	if t.Requires.HumanApproval {
		members["human_approval"] = json.RawMessage("true")
	}
	return nil
}

// inherited is requires.tree of a task's hops. All of them have the same one until the task's
// agent bounds their turns, or the server's clock is known better.
type inherited struct {
	waits    bool
	deadline time.Time
	teams    []team
	raw      json.RawMessage
}

// TreeBudget returns the bounds on the model usage of the task's tree, as its senders and this
// node's operator set them; 0: no bound. An agent that pays for models compares the counters
// [CountTokens] and [CountUSD] of [Task.Counters] with them.
func (t *Task) TreeBudget() (tokens int64, usd model.USD) {
	if t.host == nil {
		return 0, 0 // no worker has received the task
	}
	b := t.host.node.bounds(t.tree)
	return b.Tokens, b.USD
}

// MaxMessage returns the server's max_payload: the largest message in bytes, headers
// included. 0: unknown.
func (t *Task) MaxMessage() int {
	if t.host == nil {
		return 0
	}
	return int(t.host.node.conn.MaxPayload())
}

// hop reports whether the task is part of a tree, by what its sender states.
func (t *Task) hop() bool { return t.Envelope.ReplyTo != "" || t.tree != nil }

// admitHop makes the checks of an arriving task that need the shared counters. A hop without
// requires.tree comes from an agent that does not count its tasks, so the hop is counted
// here. Then the tree's budget is checked.
func (h *host) admitHop(ctx context.Context, t *Task) error {
	if t.Envelope.ReplyTo != "" && t.tree == nil {
		if err := h.node.countTask(ctx, t); err != nil {
			return err
		}
	}
	return h.node.checkBudget(ctx, t)
}
