package mesh

import (
	"context"
	"encoding/json"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
)

// The bounds of trees of tasks. Package internal/bounds keeps them; this file has its exported
// names, and what depends on the agent and its lanes: deadlines and places.

// Counters returns the two counters at which the task's work is counted. Each of them must
// stay within the bounds. The first counts the tree over all agents. The second counts the
// corr over all tasks of this agent; it also limits senders that state a false tree.
func (t *Task) Counters() []Counter { return t.tree.Counters() }

// Turn tells the mesh that the agent is about to take the n-th turn of the task, counted from
// 1 and over all workers that the run has had. It fails with E_TREE_LIMIT if the tree has no
// turn left: then the agent must not take the turn. A second call with the same n counts
// nothing.
//
// The turns of a task that belongs to no tree are counted when its agent sends its first call.
func (t *Task) Turn(ctx context.Context, n int) error { return t.tree.Turn(ctx, n) }

// BoundTurns bounds the turns of this task and of all tasks that are sent for it, together, in
// addition to the bounds of the tree. A team's handler calls it each time it starts, before
// its first Call.
func (t *Task) BoundTurns(most int64) { t.tree.BoundTurns(t.Envelope.ID, most) }

// TreeBudget returns the bounds on the model usage of the task's tree, as its senders and this
// node's operator set them; 0: no bound. An agent that pays for models compares the counters
// [CountTokens] and [CountUSD] of [Task.Counters] with them.
func (t *Task) TreeBudget() (tokens int64, usd model.USD) { return t.tree.Budget() }

// checkTree reads requires.tree. It refuses a task that is deeper in its tree than allowed, or
// whose tree's deadline has passed, and limits the task's deadline to that of the tree. A worker
// without the server's clock adds Config.Skew to the tree's deadline; if Skew is off, it ignores
// that deadline.
func checkTree(t *Task) error {
	if err := t.tree.Join(t.host.node.trees, t.host.Entity, t.Envelope, t.required(requires.Tree)); err != nil {
		return err
	}
	n, deadline := t.host.node, t.tree.Deadline()
	switch {
	case deadline.IsZero():
		return nil
	case t.run != nil:
		t.run.limit()
		return nil // the claim of the run checks the deadline
	case t.host.joined() != nil:
		deadline = n.clock.local(deadline)
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

// inherit sets the members of requires that a hop gets from t: human_approval and tree, with
// the hop's position in the tree. If waits is true, tree names t as a task that waits for the
// hop. inherit fails with E_TREE_LIMIT if the hop is too deep, or is in too many teams.
func (t *Task) inherit(members map[string]json.RawMessage, waits bool) error {
	if err := t.tree.Inherit(members, waits, func() time.Time { return t.treeDeadline(waits) }); err != nil {
		return err
	}
	if t.Requires.HumanApproval {
		members["human_approval"] = json.RawMessage("true")
	}
	return nil
}

// treeDeadline returns the deadline of the tree that t begins, by the server's clock; zero
// without that clock. For a hop that t does not wait for, a delegation, the agent's own Timeout does
// not count.
func (t *Task) treeDeadline(waits bool) time.Time {
	switch {
	case t.host.joined() == nil:
		return time.Time{}
	case t.run != nil:
		return t.run.until()
	case !waits:
		return t.host.node.clock.now().Add(t.left())
	default:
		return t.host.node.clock.at(t.Deadline)
	}
}

// refuseDeadlock refuses a task that cannot begin before a task that waits for it has ended:
// if a call comes back to an agent all of whose places are taken by the call's own ancestors,
// the tasks wait for each other. It returns E_BUSY if another worker of the agent may have a
// free place, else E_TREE_LIMIT. On the durable lane such a task is not refused, because a
// worker draws a task only when a place is free.
func (h *host) refuseDeadlock(t *Task) error {
	above := t.tree.Above()
	switch {
	case len(above) == 0:
		return nil
	case h.MeshConcurrency > 0 && len(above) >= h.MeshConcurrency:
		return envelope.Errorf(envelope.CodeTreeLimit, "deadlock: %d tasks of %s wait for this one, and the agent runs no more tasks at once (runtime.concurrency)", len(above), h.Entity)
	case len(above) < h.Concurrency:
		return nil
	}
	held := h.running.Matching(func(other *Task) bool { return other.placed.Load() && above[other.Envelope.ID] })
	if len(held) < h.Concurrency {
		return nil
	}
	return envelope.Errorf(envelope.CodeBusy, "deadlock: all places of this worker of %s are taken by tasks that wait for this one; raise the agent's concurrency", h.Entity).WithBackoff(busyPause)
}
