package calls

import (
	"context"
	"slices"
	"sync"

	"github.com/aeemesh/aeemesh/state"
)

// Record tracks the open calls that the run's checkpoint must name, and the tasks that the run
// has sent to people (sent.go). A call is added to the checkpoint before it is sent, and removed
// with the first write after it has ended. Calls that begin while a write is under way share the
// next write, so that a thousand concurrent calls cost a few writes.
type Record struct {
	mu      sync.Mutex
	next    *callBatch // the calls that the next write adds
	writing bool
	over    map[string]struct{} // ids of ended calls that the checkpoint may still name
	made    map[string]struct{} // ids of calls that were sent by this owner of the run

	sent sentTasks
}

// callBatch has the calls that one write adds.
type callBatch struct {
	calls []state.Call
	done  chan struct{} // closed when the calls are written or the write has failed
	err   error
}

// addCall adds a call to the run's checkpoint, if the checkpoint does not name it or lacks its
// digest, and waits for the write.
func (r *Run) addCall(ctx context.Context, call state.Call) error {
	b := r.Record
	b.mu.Lock()
	delete(b.over, call.ID)
	if slices.ContainsFunc(r.Port.Checkpoint().Mesh.Calls, func(c state.Call) bool { return c.ID == call.ID && !lacks(c, call) }) {
		b.mu.Unlock()
		return nil
	}
	if b.next == nil {
		b.next = &callBatch{done: make(chan struct{})}
	}
	mine := b.next
	mine.calls = append(mine.calls, call)
	if !b.writing {
		b.writing = true
		r.Port.Go(r.writeCalls)
	}
	b.mu.Unlock()
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// names reports whether the run's checkpoint names a call that has not ended: it was sent before, by
// this owner of the run or an earlier one.
func (r *Run) names(key, id string) bool {
	r.Record.mu.Lock()
	defer r.Record.mu.Unlock()
	_, ended := r.Record.over[id]
	return !ended && slices.ContainsFunc(r.openCalls(key), func(c state.Call) bool { return c.ID == id })
}

// writeCalls writes the pending batches until none is left.
func (r *Run) writeCalls() {
	b := r.Record
	for {
		b.mu.Lock()
		batch := b.next
		b.next, b.writing = nil, batch != nil
		b.mu.Unlock()
		if batch == nil {
			return
		}
		batch.err = r.addCalls(batch.calls)
		close(batch.done)
	}
}

func (r *Run) addCalls(calls []state.Call) error {
	return r.Port.Change(func(c *state.Checkpoint) error {
		for _, call := range calls {
			i := slices.IndexFunc(c.Mesh.Calls, func(old state.Call) bool { return old.ID == call.ID })
			switch {
			case i < 0:
				c.Mesh.Calls = append(c.Mesh.Calls, call)
			case lacks(c.Mesh.Calls[i], call):
				c.Mesh.Calls[i].Sent = append(slices.Clip(c.Mesh.Calls[i].Sent), call.Sent...)
			}
		}
		step := state.Step{Kind: state.StepCall, Name: calls[0].Key, Detail: calls[0].To}
		if len(calls) > 1 {
			step.Name, step.Detail = "", ""
		}
		c.Mesh.Step = step
		return nil
	})
}

// markJob records that a call was answered with a job id.
func (r *Run) markJob(id string) error {
	return r.Port.Change(func(c *state.Checkpoint) error {
		for i := range c.Mesh.Calls {
			if call := &c.Mesh.Calls[i]; call.ID == id {
				call.Job = true
				c.Mesh.Step = state.Step{Kind: state.StepCall, Name: call.Key, Detail: call.To}
			}
		}
		return nil
	})
}

// lacks reports whether a recorded call lacks the digest of the task that is sent for it now.
func lacks(recorded, call state.Call) bool {
	return len(call.Sent) > 0 && !slices.Contains(recorded.Sent, call.Sent[0])
}

// markSent records that a call is sent now, and reports whether this owner of the run has
// sent it before.
func (b *Record) markSent(id string) (again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made == nil {
		b.made = map[string]struct{}{}
	}
	_, again = b.made[id]
	b.made[id] = struct{}{}
	return again
}

// ended records that a call has ended and need not be cancelled.
func (b *Record) ended(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over == nil {
		b.over = map[string]struct{}{}
	}
	b.over[id] = struct{}{}
}

// RemoveEnded removes ended calls from a checkpoint that is about to be written.
func (b *Record) RemoveEnded(c *state.Checkpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.over) == 0 {
		return
	}
	c.Mesh.Calls = slices.DeleteFunc(c.Mesh.Calls, func(call state.Call) bool {
		_, ended := b.over[call.ID]
		return ended
	})
}

// ForgetRemoved forgets the ids of ended calls that the stored checkpoint no longer names.
func (b *Record) ForgetRemoved(c *state.Checkpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.over) == 0 {
		return
	}
	left := map[string]struct{}{}
	for _, call := range c.Mesh.Calls {
		if _, ended := b.over[call.ID]; ended {
			left[call.ID] = struct{}{}
		}
	}
	b.over = left
}

// openCalls returns the calls with a key that the run's checkpoint names.
func (r *Run) openCalls(key string) (open []state.Call) {
	for _, c := range r.Port.Checkpoint().Mesh.Calls {
		if c.Key == key {
			open = append(open, c)
		}
	}
	return open
}
