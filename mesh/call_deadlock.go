package mesh

import (
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// If a call comes back to an agent all of whose places are taken by the call's own
// ancestors, the tasks wait for each other: a deadlock. So a hop names the tasks that wait
// for it, and a worker refuses a hop on the live lane that would deadlock.

// waitingTask is a task that waits for a call.
type waitingTask struct {
	Entity string `json:"entity"`
	Task   string `json:"task"`
}

// maxAbove bounds the waiting tasks that a hop names. If there are more, the hop names the
// innermost ones.
const maxAbove = 64

func badWaiting(all []waitingTask) bool {
	return len(all) > maxAbove || slices.ContainsFunc(all, func(w waitingTask) bool { return len(w.Entity) > wire.MaxName || len(w.Task) > wire.MaxName })
}

// waiters returns the tasks that wait for a call of t: the tasks that wait for t, then t
// itself.
func (t *Task) waiters() []waitingTask {
	var all []waitingTask
	if t.tree != nil {
		all = t.tree.Waiting
	}
	all = append(all[:len(all):len(all)], waitingTask{t.host.Entity, t.Envelope.ID})
	return all[max(0, len(all)-maxAbove):]
}

// refuseDeadlock refuses a task that cannot begin before a task that waits for it has ended. It
// returns E_BUSY if another worker of the agent may have a free place, else E_TREE_LIMIT.
func (h *host) refuseDeadlock(t *Task) error {
	if t.tree == nil {
		return nil
	}
	above := map[string]bool{}
	for _, w := range t.tree.Waiting {
		if w.Entity == h.Entity {
			above[w.Task] = true
		}
	}
	switch {
	case len(above) == 0:
		return nil
	case h.MeshConcurrency > 0 && len(above) >= h.MeshConcurrency:
		return envelope.Errorf(envelope.CodeTreeLimit, "deadlock: %d tasks of %s wait for this one, and the agent runs no more tasks at once (runtime.concurrency)", len(above), h.Entity)
	case len(above) < h.Concurrency:
		return nil
	}
	held := h.running.matching(func(other *Task) bool { return other.placed.Load() && above[other.Envelope.ID] })
	if len(held) < h.Concurrency {
		return nil
	}
	return envelope.Errorf(envelope.CodeBusy, "deadlock: all places of this worker of %s are taken by tasks that wait for this one; raise the agent's concurrency", h.Entity).WithBackoff(busyPause)
}

// circleLook is the number of leases after which watchDeadlock checks whether a durable call
// has begun. On the durable lane a call that would deadlock is not refused, because a worker
// draws a task only when a place is free.
const circleLook = 4

// watchDeadlock logs a warning if a durable call to an agent that itself waits for the call
// (t's agent, or an agent above t in the tree) has not begun after circleLook leases. Such a
// call may be deadlocked, and then only its timeout ends it. The returned function stops the
// watch.
func (o *outgoing) watchDeadlock(call *envelope.Envelope) func() {
	if !slices.ContainsFunc(o.waiters(), func(w waitingTask) bool { return w.Entity == call.To }) {
		return func() {}
	}
	timer := time.AfterFunc(circleLook*o.run.lane.queue.Lease(), func() {
		if !o.taskBegun(call) {
			o.host.log.Warn("possible deadlock: the called agent itself waits for this call and has not begun it; if all its places are taken by waiting tasks, raise its concurrency",
				"id", o.Envelope.ID, "corr", o.Envelope.Corr, "to", call.To, "task", call.ID)
		}
	})
	return func() { timer.Stop() }
}
