package bounds

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// Tree is requires.tree: the position of a task in its tree, and the bounds of the tree. A
// root task has bounds only. A bound of 0 means: the operator's bound.
type Tree struct {
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

// team is a bound on the turns of a part of a tree: of one task and all tasks that were sent
// for it.
type team struct {
	Task          string `json:"task"` // the id of that task
	MaxIterations int64  `json:"max_iterations"`
}

// waitingTask is a task that waits for a call.
type waitingTask struct {
	Entity string `json:"entity"`
	Task   string `json:"task"`
}

const (
	maxTreeKey = 64 // the longest key of a tree's counters, in bytes
	maxTeams   = 16 // the maximum number of nested teams
	// maxAbove bounds the waiting tasks that a hop names. If there are more, the hop names
	// the innermost ones.
	maxAbove = 64
)

// ReadTree reads requires.tree. It returns nil if there is none. A bound in the JSON must be
// positive; in a [Tree], 0 means that the bound is absent.
func ReadTree(raw json.RawMessage) (*Tree, error) {
	if raw == nil {
		return nil, nil
	}
	var w *struct {
		Tree
		MaxDepth      *int       `json:"max_depth"` // hides the field of Tree
		MaxTasks      *int64     `json:"max_tasks"`
		MaxIterations *int64     `json:"max_iterations"`
		Tokens        *int64     `json:"tokens"`
		USD           *model.USD `json:"usd"`
	}
	err := wire.ReadJSON(raw, &w)
	if w == nil && err == nil {
		return nil, nil
	}
	if err != nil {
		var misfit *jsonv2.SemanticError
		if errors.As(err, &misfit) && misfit.JSONPointer != "" {
			at := strings.ReplaceAll(string(misfit.JSONPointer), "/", ".")
			return nil, envelope.Errorf(envelope.CodeRequires, "requires.tree%s is not of the right type", clip.Text(at, 128))
		}
		return nil, envelope.Errorf(envelope.CodeRequires, "requires.tree is not valid: it must be an object")
	}
	for _, bound := range []struct {
		name string
		low  bool
	}{
		{"max_depth", tooLow(w.MaxDepth)}, {"max_tasks", tooLow(w.MaxTasks)}, {"max_iterations", tooLow(w.MaxIterations)}, {"tokens", tooLow(w.Tokens)}, {"usd", tooLow(w.USD)},
	} {
		if bound.low {
			return nil, envelope.Errorf(envelope.CodeRequires, "requires.tree.%s: a bound must be greater than 0; leave it out for no bound", bound.name)
		}
	}
	t := &w.Tree
	t.MaxDepth, t.MaxTasks, t.MaxIterations = value(w.MaxDepth), value(w.MaxTasks), value(w.MaxIterations)
	t.Tokens, t.USD = value(w.Tokens), value(w.USD)
	if t.Depth < 0 || len(t.Root) > wire.MaxName || len(t.Key) > maxTreeKey || badTeams(t.Teams) || badWaiting(t.Waiting) {
		return nil, envelope.Errorf(envelope.CodeRequires, "requires.tree is not valid")
	}
	return t, nil
}

func badTeams(teams []team) bool {
	return len(teams) > maxTeams || slices.ContainsFunc(teams, func(b team) bool { return b.Task == "" || len(b.Task) > wire.MaxName || b.MaxIterations <= 0 })
}

func badWaiting(all []waitingTask) bool {
	return len(all) > maxAbove || slices.ContainsFunc(all, func(w waitingTask) bool { return len(w.Entity) > wire.MaxName || len(w.Task) > wire.MaxName })
}

// tooLow reports whether a bound is given, and is not greater than 0.
func tooLow[N int | int64 | model.USD](n *N) bool { return n != nil && *n <= 0 }

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

// within returns the bounds of a tree at this node: the operator's, lowered by those in
// requires.tree. t may be nil.
func (t *Tree) within(own Limits) Tree {
	out := Tree{MaxDepth: own.MaxDepth, MaxTasks: own.MaxTasks, MaxIterations: own.MaxIterations, Tokens: own.Tokens, USD: own.USD}
	if t != nil {
		out.Root, out.Key, out.Depth, out.Deadline, out.Waiting = t.Root, t.Key, t.Depth, t.Deadline, t.Waiting
		out.MaxDepth, out.MaxTasks = lower(t.MaxDepth, out.MaxDepth), lower(t.MaxTasks, out.MaxTasks)
		out.MaxIterations = lower(t.MaxIterations, out.MaxIterations)
		out.Tokens, out.USD = lower(t.Tokens, out.Tokens), lower(t.USD, out.USD)
	}
	return out
}
