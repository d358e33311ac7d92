package mesh

import (
	"context"
	"sync"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/state"
)

// A turn is one step of an agent's own loop: a model that is asked once more (AAIF,
// orchestration.max_iterations). An agent's document bounds those of each of its
// tasks; the turns of all tasks of a tree together are counted here, by whoever runs
// the agent.

// turns are those that a task's agent has taken.
type turns struct {
	mu      sync.Mutex
	taken   int  // the number of the last one
	counted int  // as many of them are in the tree's counter
	called  bool // the agent has called somebody: what was a task alone is a tree
}

// team is a bound on the turns of a part of a tree: of a task, and of all that came
// of it.
type team struct {
	Task          string `json:"task"` // its id
	MaxIterations int64  `json:"max_iterations"`
}

// maxTeams is how many of them may be around a task.
const maxTeams = 16

// Turn tells the mesh that the task's agent is about to take its n-th turn for it,
// counted from 1 and over all workers that the run has had. It fails with
// E_TREE_LIMIT where the tree has no turn left: then the agent must not take it.
// The same n again is the same turn.
//
// A task that belongs to no tree is not counted before its agent calls somebody.
func (t *Task) Turn(ctx context.Context, n int) error {
	if t.host == nil {
		return nil // no worker has taken it in
	}
	t.turns.mu.Lock()
	t.turns.taken = max(t.turns.taken, n)
	t.turns.mu.Unlock()
	return t.countTurns(ctx, t.hop())
}

// BoundTurns bounds the turns of this task and of all that comes of it together, on
// top of what bounds the tree. It is for a team, and is said before anybody is
// called, each time that the task's handler begins.
func (t *Task) BoundTurns(most int64) {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	t.bound = &team{t.Envelope.ID, most}
}

// grows notes that the task's agent is about to call somebody.
func (t *Task) grows(ctx context.Context) error {
	t.turns.mu.Lock()
	t.turns.called = true
	t.turns.mu.Unlock()
	return t.countTurns(ctx, true)
}

// countTurns counts the turns that are not counted yet, if the task is part of a
// tree.
func (t *Task) countTurns(ctx context.Context, tree bool) error {
	t.turns.mu.Lock()
	fresh := int64(0)
	if tree || t.turns.called {
		fresh = int64(max(0, t.turns.taken-t.turns.counted))
		t.turns.counted = max(t.turns.counted, t.turns.taken)
	}
	t.turns.mu.Unlock()
	if fresh == 0 {
		return nil
	}
	n := t.host.node
	most := n.bounds(t.tree).MaxIterations
	switch total, err := n.count(ctx, t, fresh, CountTurns); {
	case err != nil:
		return err
	case total > most:
		return envelope.Errorf(envelope.CodeTreeLimit, "the agents of this tree have taken %d turns, and %d are allowed (max_iterations of the tree)", total-1, most)
	}
	for _, b := range t.teams() {
		switch total, err := n.count(ctx, t, fresh, CountTurns, b.Task); {
		case err != nil:
			return err
		case total > b.MaxIterations:
			return envelope.Errorf(envelope.CodeTreeLimit, "the team that works on task %s has taken %d turns, and its document allows %d", clip.Text(b.Task, 128), total-1, b.MaxIterations)
		}
	}
	return nil
}

// teams are the bounds on the parts of the tree that the task is in, its own last.
func (t *Task) teams() []team {
	var all []team
	if t.tree != nil {
		all = t.tree.Teams
	}
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	if t.bound != nil {
		all = append(all[:len(all):len(all)], *t.bound)
	}
	return all
}

// keep writes into a checkpoint how many turns are counted, and restore reads it:
// who goes on with a run counts none of them again, but for one that was under way.
func (t *turns) keep(c *state.Checkpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Mesh.Turns = t.counted
}

func (t *turns) restore(c *state.Checkpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counted = max(t.counted, c.Mesh.Turns) // a claim may be made again while its handler runs
}
