package bounds

import (
	"cmp"
	"errors"

	"github.com/aeemesh/aeemesh/agents/model"
)

// Defaults of [Limits].
const (
	DefaultMaxDepth = 16
	DefaultMaxTasks = 10_000
	// DefaultMaxIterations allows 10 turns for each of 1,000 agents.
	DefaultMaxIterations = 10_000
)

// Limits bound a tree of tasks: a root task and all tasks that agents sent for it. A
// sender may set lower bounds for its own tree (requires.tree), never higher ones.
type Limits struct {
	// MaxDepth is the largest number of hops between the root task and any task of
	// the tree. Default 16.
	MaxDepth int `json:"max_depth"`
	// MaxTasks is how many tasks agents may send one another in one tree.
	// Workers that share Counters count together. Default 10,000.
	MaxTasks int64 `json:"max_tasks"`
	// MaxIterations is how many turns all agents together may take for the tasks
	// of one tree; see [Position.Turn]. Default 10,000.
	MaxIterations int64 `json:"max_iterations"`

	// Tokens and USD bound the model usage of a tree. They are written into every hop, so
	// every worker enforces them. Default: no bound. The budget of a single worker is not
	// enforced here but by its agents.
	Tokens int64     `json:"-"`
	USD    model.USD `json:"-"`
}

// WithDefaults returns the limits with the defaults filled in, and an error if a bound is
// negative.
func (l Limits) WithDefaults() (Limits, error) {
	if err := l.Validate(); err != nil {
		return l, err
	}
	l.MaxDepth = cmp.Or(l.MaxDepth, DefaultMaxDepth)
	l.MaxTasks = cmp.Or(l.MaxTasks, DefaultMaxTasks)
	l.MaxIterations = cmp.Or(l.MaxIterations, DefaultMaxIterations)
	return l, nil
}

// Validate returns an error if a bound is negative.
func (l Limits) Validate() error {
	if l.MaxDepth < 0 || l.MaxTasks < 0 || l.MaxIterations < 0 || l.Tokens < 0 || l.USD < 0 {
		return errors.New("tree: a bound cannot be negative")
	}
	return nil
}
