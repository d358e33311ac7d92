package mesh

import (
	"context"
	"slices"
	"sync"

	"github.com/aeemesh/aeemesh/state"
)

// calls tracks the open calls that the run's checkpoint must name. A call is added to the
// checkpoint before it is sent, and removed with the first write after it has ended. Calls
// that begin while a write is under way share the next write, so that a thousand concurrent
// calls cost a few writes.
type calls struct {
	mu      sync.Mutex
	next    *callBatch // the calls that the next write adds
	writing bool
	ended   map[string]struct{} // ids that the checkpoint may still name
	sent    map[string]struct{} // ids that were sent by this owner of the run
}

// callBatch has the calls that one write adds.
type callBatch struct {
	calls []state.Call
	done  chan struct{} // closed when the calls are written or the write has failed
	err   error
}

// recordCall adds a call to the run's checkpoint, if the checkpoint does not name it, and waits
// for the write.
func (r *Run) recordCall(ctx context.Context, call state.Call) error {
	b := &r.calls
	b.mu.Lock()
	delete(b.ended, call.ID)
	if slices.ContainsFunc(r.cp.Load().Mesh.Calls, func(c state.Call) bool { return c.ID == call.ID }) {
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
		r.lane.work.Go(r.writeCalls)
	}
	b.mu.Unlock()
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		r.callEnded(call.ID) // the call will not be sent
		return context.Cause(ctx)
	}
}

// writeCalls writes the pending batches until none is left.
func (r *Run) writeCalls() {
	b := &r.calls
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
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		return r.end
	}
	return r.write(r.task.context(), func(c *state.Checkpoint) error {
		c.Mesh.Calls = append(c.Mesh.Calls, calls...)
		step := state.Step{Kind: state.StepCall, Name: calls[0].Key, Detail: calls[0].To}
		if len(calls) > 1 {
			step.Name, step.Detail = "", ""
		}
		c.Mesh.Step = step
		return nil
	})
}

// callSent records that a call is sent now, and reports whether this owner of the run has
// sent it before.
func (r *Run) callSent(id string) (again bool) {
	b := &r.calls
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sent == nil {
		b.sent = map[string]struct{}{}
	}
	_, again = b.sent[id]
	b.sent[id] = struct{}{}
	return again
}

// callEnded records that a call has ended and need not be cancelled.
func (r *Run) callEnded(id string) {
	b := &r.calls
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended == nil {
		b.ended = map[string]struct{}{}
	}
	b.ended[id] = struct{}{}
}

// removeEnded removes ended calls from a checkpoint that is about to be written.
func (b *calls) removeEnded(c *state.Checkpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ended) == 0 {
		return
	}
	c.Mesh.Calls = slices.DeleteFunc(c.Mesh.Calls, func(call state.Call) bool {
		_, over := b.ended[call.ID]
		return over
	})
}

// forgetRemoved forgets the ids of ended calls that the stored checkpoint no longer names.
func (b *calls) forgetRemoved(c *state.Checkpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ended) == 0 {
		return
	}
	left := map[string]struct{}{}
	for _, call := range c.Mesh.Calls {
		if _, over := b.ended[call.ID]; over {
			left[call.ID] = struct{}{}
		}
	}
	b.ended = left
}

// openCalls returns the calls with a key that the run's checkpoint names.
func (r *Run) openCalls(key string) (open []state.Call) {
	for _, c := range r.cp.Load().Mesh.Calls {
		if c.Key == key {
			open = append(open, c)
		}
	}
	return open
}
