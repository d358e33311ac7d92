package mesh

import (
	"context"
	"sync"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/state"
)

// A turn is one step of an agent's own loop: one call of a model (AAIF,
// orchestration.max_iterations). An agent's document bounds the turns of each of its tasks.
// This file counts the turns of all tasks of a tree together; the agent reports them with
// [Task.Turn].

// turns counts the turns that a task's agent has taken.
type turns struct {
	mu      sync.Mutex
	taken   int  // the number of the last turn
	counted int  // how many turns were added to the tree's counter
	called  bool // the agent has sent a call, so the task is in a tree
}

// team is a bound on the turns of a part of a tree: of one task and all tasks that were sent
// for it.
type team struct {
	Task          string `json:"task"` // the id of that task
	MaxIterations int64  `json:"max_iterations"`
}

// maxTeams is the maximum number of nested teams.
const maxTeams = 16

// Turn tells the mesh that the agent is about to take the n-th turn of the task, counted from
// 1 and over all workers that the run has had. It fails with E_TREE_LIMIT if the tree has no
// turn left: then the agent must not take the turn. A second call with the same n counts
// nothing.
//
// The turns of a task that belongs to no tree are counted when its agent sends its first call.
func (t *Task) Turn(ctx context.Context, n int) error {
	if t.host == nil {
		return nil // no worker has received the task
	}
	t.turns.mu.Lock()
	t.turns.taken = max(t.turns.taken, n)
	t.turns.mu.Unlock()
	return turnCount{t}.countTurns(ctx, t.hop())
}

// BoundTurns bounds the turns of this task and of all tasks that are sent for it, together, in
// addition to the bounds of the tree. A team's handler calls it each time it starts, before
// its first Call.
func (t *Task) BoundTurns(most int64) {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	t.bound = &team{t.Envelope.ID, most}
}

// turnCount counts the turns of a task for its tree and for the teams that it belongs to.
type turnCount struct{ *Task }

// beginTree records that the task's agent is about to send a call, and counts the turns so far.
func (tc turnCount) beginTree(ctx context.Context) error {
	tc.turns.mu.Lock()
	tc.turns.called = true
	tc.turns.mu.Unlock()
	return tc.countTurns(ctx, true)
}

// countTurns counts the turns that are not counted yet, if the task is part of a
// tree.
func (tc turnCount) countTurns(ctx context.Context, tree bool) error {
	tc.turns.mu.Lock()
	fresh := int64(0)
	if tree || tc.turns.called {
		fresh = int64(max(0, tc.turns.taken-tc.turns.counted))
		tc.turns.counted = max(tc.turns.counted, tc.turns.taken)
	}
	tc.turns.mu.Unlock()
	if fresh == 0 {
		return nil
	}
	n := tc.host.node
	most := n.bounds(tc.tree).MaxIterations
	switch total, err := n.count(tc.Task, fresh, CountTurns).total(ctx); {
	case err != nil:
		return err
	case total > most:
		return envelope.Errorf(envelope.CodeTreeLimit, "the agents of this tree have taken %d turns, and %d are allowed (max_iterations of the tree)", total-1, most)
	}
	for _, b := range tc.teams() {
		switch total, err := n.count(tc.Task, fresh, CountTurns, b.Task).total(ctx); {
		case err != nil:
			return err
		case total > b.MaxIterations:
			return envelope.Errorf(envelope.CodeTreeLimit, "the team that works on task %s has taken %d turns, and its document allows %d", clip.Text(b.Task, 128), total-1, b.MaxIterations)
		}
	}
	return nil
}

// teams returns the turn bounds of the nested teams that the task belongs to, the outermost
// first, the task's own last.
func (tc turnCount) teams() []team {
	var all []team
	if tc.tree != nil {
		all = tc.tree.Teams
	}
	tc.turns.mu.Lock()
	defer tc.turns.mu.Unlock()
	if tc.bound != nil {
		all = append(all[:len(all):len(all)], *tc.bound)
	}
	return all
}

// keep writes into a checkpoint how many turns are counted, and restore reads that number. So
// the next owner of the run does not count them again, except a turn that was under way.
func (t *turns) keep(c *state.Checkpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Mesh.Turns = t.counted
}

func (t *turns) restore(c *state.Checkpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counted = max(t.counted, c.Mesh.Turns) // the run may be claimed again while its handler runs
}
