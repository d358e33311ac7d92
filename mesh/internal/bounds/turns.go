package bounds

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
// [Position.Turn].

// turns counts the turns that a task's agent has taken.
type turns struct {
	mu      sync.Mutex
	taken   int   // the number of the last turn
	counted int   // how many turns were added to the tree's counter
	called  bool  // the agent has sent a call, so the task is in a tree
	bound   *team // of a task whose agent leads a team with a bound of its own
}

// Turn records that the agent is about to take the n-th turn of the task, counted from 1 and
// over all workers that the run has had. It fails with E_TREE_LIMIT if the tree has no turn
// left. A second call with the same n counts nothing.
//
// The turns of a task that belongs to no tree are counted when its agent sends its first call.
func (p *Position) Turn(ctx context.Context, n int) error {
	if p.keeper == nil {
		return nil
	}
	p.turns.mu.Lock()
	p.turns.taken = max(p.turns.taken, n)
	p.turns.mu.Unlock()
	return p.countTurns(ctx, p.Hop())
}

// BoundTurns bounds the turns of the task and of all tasks that are sent for it, together, in
// addition to the bounds of the tree.
func (p *Position) BoundTurns(task string, most int64) {
	p.turns.mu.Lock()
	defer p.turns.mu.Unlock()
	p.turns.bound = &team{task, most}
}

// BeginTree records that the task's agent is about to send a call, and counts the turns so far.
func (p *Position) BeginTree(ctx context.Context) error {
	p.turns.mu.Lock()
	p.turns.called = true
	p.turns.mu.Unlock()
	return p.countTurns(ctx, true)
}

// countTurns counts the turns that are not counted yet, if the task is part of a
// tree.
func (p *Position) countTurns(ctx context.Context, tree bool) error {
	p.turns.mu.Lock()
	fresh := int64(0)
	if tree || p.turns.called {
		fresh = int64(max(0, p.turns.taken-p.turns.counted))
		p.turns.counted = max(p.turns.counted, p.turns.taken)
	}
	p.turns.mu.Unlock()
	if fresh == 0 {
		return nil
	}
	most := p.bounds().MaxIterations
	switch total, err := p.count(fresh, CountTurns).total(ctx); {
	case err != nil:
		return err
	case total > most:
		return envelope.Errorf(envelope.CodeTreeLimit, "the agents of this tree have taken %d turns, and %d are allowed (max_iterations of the tree)", total-1, most)
	}
	for _, b := range p.teams() {
		switch total, err := p.count(fresh, CountTurns, b.Task).total(ctx); {
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
func (p *Position) teams() []team {
	var all []team
	if p.tree != nil {
		all = p.tree.Teams
	}
	p.turns.mu.Lock()
	defer p.turns.mu.Unlock()
	if p.turns.bound != nil {
		all = append(all[:len(all):len(all)], *p.turns.bound)
	}
	return all
}

// KeepTurns writes into a checkpoint how many turns are counted, and RestoreTurns reads that
// number. So the next owner of the run does not count them again, except a turn that was under
// way.
func (p *Position) KeepTurns(c *state.Checkpoint) {
	p.turns.mu.Lock()
	defer p.turns.mu.Unlock()
	c.Mesh.Turns = p.turns.counted
}

// RestoreTurns is the counterpart of KeepTurns.
func (p *Position) RestoreTurns(c *state.Checkpoint) {
	p.turns.mu.Lock()
	defer p.turns.mu.Unlock()
	p.turns.counted = max(p.turns.counted, c.Mesh.Turns) // the run may be claimed again while its handler runs
}
