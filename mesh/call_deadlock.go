package mesh

import (
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
)

// A task that comes back to an agent while its own ancestors hold all places of that
// agent would wait for tasks that wait for it. So a hop says who waits for it, and a
// worker that sees the circle close on the live lane refuses it.

// waitingTask is a task whose agent has called somebody, and waits.
type waitingTask struct {
	Entity string `json:"entity"`
	Task   string `json:"task"`
}

// maxAbove bounds how many of them a hop names: the innermost.
const maxAbove = 64

func badWaiting(all []waitingTask) bool {
	return len(all) > maxAbove || slices.ContainsFunc(all, func(w waitingTask) bool { return len(w.Entity) > maxName || len(w.Task) > maxName })
}

// waitedFor are the tasks that wait for what t calls, t the last of them.
func (t *Task) waitedFor() []waitingTask {
	var all []waitingTask
	if t.tree != nil {
		all = t.tree.Waiting
	}
	all = append(all[:len(all):len(all)], waitingTask{t.host.Entity, t.Envelope.ID})
	return all[max(0, len(all)-maxAbove):]
}

// circle refuses a task that could only begin when one of those has ended that
// wait for it. E_BUSY: another worker of the agent may have a place.
func (h *host) circle(t *Task) error {
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
		return envelope.Errorf(envelope.CodeTreeLimit, "%d tasks of %s wait for this one, and it does no more at once: it comes back to an agent that cannot begin it", len(above), h.Entity)
	case len(above) < h.Concurrency:
		return nil
	}
	held := h.running.matching(func(other *Task) bool { return other.placed.Load() && above[other.Envelope.ID] })
	if len(held) < h.Concurrency {
		return nil
	}
	return envelope.Errorf(envelope.CodeBusy, "all places of this worker of %s are taken by tasks that wait for this one: it comes back to an agent that needs a higher concurrency for that", h.Entity).WithBackoff(busyPause)
}

// circleLook is after how many leases a call that comes back to an agent further up
// is looked for: nobody refuses it on the durable lane, where a task is drawn only
// when there is a place.
const circleLook = 4

// watchCircle tells the operator of a call over the durable lane that nobody begins,
// where its agent has called this one, or who called it: it may wait for a place that
// waits for it, and ends with its time alone. The returned function ends the watch.
func (t *Task) watchCircle(call *envelope.Envelope) func() {
	if !slices.ContainsFunc(t.waitedFor(), func(w waitingTask) bool { return w.Entity == call.To }) {
		return func() {}
	}
	timer := time.AfterFunc(circleLook*t.run.lane.queue.Lease(), func() {
		if !t.callBegun(call) {
			t.host.log.Warn("a call comes back to an agent that waits for it, and is not begun there: if all its places wait, it needs a higher concurrency",
				"id", t.Envelope.ID, "corr", t.Envelope.Corr, "to", call.To, "task", call.ID)
		}
	})
	return func() { timer.Stop() }
}
