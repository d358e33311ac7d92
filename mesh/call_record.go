package mesh

import (
	"context"
	"slices"
	"sync"

	"github.com/aeemesh/aeemesh/state"
)

// calls are those of a run, as far as its checkpoint has to tell of them. A call
// is written before it is sent, and taken out with the next write after it has
// ended. Calls that begin while a write is under way share the next one, so that a
// thousand at once cost a few writes.
type calls struct {
	mu      sync.Mutex
	next    *callBatch // what waits to be written
	writing bool
	ended   map[string]struct{} // ids that the checkpoint may still name
	sent    map[string]struct{} // ids that were sent by this owner of the run
}

// callBatch are calls that are written together.
type callBatch struct {
	calls []state.Call
	done  chan struct{} // closed when they are, or cannot be
	err   error
}

// record makes sure that the run's checkpoint tells of a call.
func (r *Run) record(ctx context.Context, call state.Call) error {
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
		r.callEnded(call.ID) // it will not be sent
		return context.Cause(ctx)
	}
}

// writeCalls writes what waits, until nothing does.
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

// callSent notes that a call is sent now, and reports whether this owner of the
// run has done so before.
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

// callEnded notes that nothing is left to be stopped of a call.
func (r *Run) callEnded(id string) {
	b := &r.calls
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended == nil {
		b.ended = map[string]struct{}{}
	}
	b.ended[id] = struct{}{}
}

// takeOut takes the calls that have ended out of a checkpoint that is about to be
// written.
func (b *calls) takeOut(c *state.Checkpoint) {
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

// takenOut forgets the calls that the checkpoint, as it is stored, names no more.
func (b *calls) takenOut(c *state.Checkpoint) {
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

// openCall is the call of a key that the run's checkpoint tells of.
func (r *Run) openCalls(key string) (open []state.Call) {
	for _, c := range r.cp.Load().Mesh.Calls {
		if c.Key == key {
			open = append(open, c)
		}
	}
	return open
}
