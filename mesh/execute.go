package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
)

// accept queues a task that has passed admission. It answers reserved intents without
// the queue, and refuses tasks whose requirements cannot be met.
func (h *host) accept(t *Task, header nats.Header) {
	t.span = t.startSpan(header)
	if err := (admission{t}).prepare(); err != nil {
		h.fail(t, err)
		return
	}
	if intents.Reserved(t.Envelope.Intent) {
		// Not queued: a busy agent answers a ping, too.
		if !h.lane(t.Envelope.Intent).Go(func() { h.reserved.answerReserved(t) }) {
			h.counts.busy.Add(1)
			h.fail(t, busy(h.Entity))
		}
		return
	}
	if _, atOnce := t.class(); atOnce {
		if h.track(t); h.cancelledEarly(t) {
			return
		}
		if !h.beside.Go(func() { h.runBeside(t) }) {
			h.running.Remove(&t.entry)
			h.counts.busy.Add(1)
			h.fail(t, busy(h.Entity))
		}
		return
	}
	if h.later(t) {
		if h.cancelledEarly(t) {
			return
		}
		if !h.lookups.Go(func() { h.background(t) }) {
			h.counts.busy.Add(1)
			h.fail(t, busy(h.Entity))
		}
		return
	}
	if err := h.refuseDeadlock(t); err != nil {
		h.counts.busy.Add(1)
		h.fail(t, err)
		return
	}
	if h.track(t); h.cancelledEarly(t) {
		return
	}
	if !h.put(t) {
		h.running.Remove(&t.entry)
		if h.stopping.Load() {
			h.fail(t, drainingError(h.Entity))
			return
		}
		h.counts.busy.Add(1)
		h.fail(t, busy(h.Entity))
	}
}

func busy(entity string) *envelope.Error {
	return envelope.Errorf(envelope.CodeBusy, "the queue of this worker of %s is full", entity).WithBackoff(busyPause)
}

// busyPause is how long a sender should wait before it asks a busy agent again.
const busyPause = 250 * time.Millisecond

// work runs tasks until the queue closes. If a handler ends the goroutine
// ([runtime.Goexit]), a new goroutine takes its place.
func (h *host) work() { h.workAs(h.queue.Taker(), false) }

func (h *host) workAs(w *sched.Taker, finished bool) {
	closed := false
	defer func() {
		if !closed {
			h.workers.Go(func() { h.workAs(w, true) })
		}
	}()
	for t, ok := h.queue.Take(w, finished); ok; t, ok = h.queue.Take(w, true) {
		h.run(t)
	}
	closed = true
}

// run runs one task until its terminal envelope is sent.
func (h *host) run(t *Task) {
	h.active.Add(1)
	defer h.active.Add(-1)
	defer t.stop(context.Canceled)
	if t.run != nil {
		t.run.perform()
		return
	}
	if t.done.Load() {
		return // cancelled, or overdue, before it began
	}
	t.placed.Store(true)
	if l := h.joined(); l != nil {
		if err := l.enterSlot(t, 0); err != nil {
			h.fail(t, err)
			return
		}
		defer l.leaveSlot(t)
	}
	if t.tree.Hop() {
		if err := t.tree.Admit(taskContext{t}); err != nil {
			h.fail(t, err)
			return
		}
	}
	if t.begins(); t.done.Load() {
		return // the sender may have been told that it did not begin
	}
	h.events.taskEvent(intents.TaskStarted, t, nil)
	h.execute(t)
}

// begins records how long the task waited in the queue.
func (t *Task) begins() { t.waited.Store(max(1, int64(time.Since(t.queued)))) }

// execute calls the handler, validates its result or error, and sends the terminal
// envelope.
func (h *host) execute(t *Task) {
	ctx := taskContext{t}
	payload, err := h.handle(ctx, t)
	if err != nil {
		var o *delegation
		if errors.As(err, &o) && o.task == t {
			h.delegate(t, o)
			return
		}
	}
	if err == nil {
		intent, _ := t.class()
		err = h.payloads.CheckResult(intent, &t.Requires, payload)
	} else if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
		err = cause
	} else {
		intent, _ := t.class()
		err = h.payloads.CheckError(intent, fault.AfterBegin(err))
	}
	if err != nil {
		h.fail(t, err)
		return
	}
	h.succeed(t, payload)
}

func deadlineError(t *Task) *envelope.Error {
	if t.run != nil {
		return t.run.overdue()
	}
	return notDone(t.Requires.Timeout).WithCause(context.DeadlineExceeded)
}

// notDone returns E_TIMEOUT with the limit in round numbers. The limit is up to a twentieth
// shorter than the time that the sender waits, so that the answer arrives in time.
func notDone(limit time.Duration) *envelope.Error {
	grain := time.Millisecond
	switch {
	case limit >= time.Minute:
		grain = time.Second
	case limit >= time.Second:
		grain = 100 * time.Millisecond
	case limit >= 100*time.Millisecond:
		grain = 10 * time.Millisecond
	}
	return envelope.Errorf(envelope.CodeTimeout, "not done within %v", limit.Round(grain))
}

// noSlotError returns the error of a task that was not begun because JetStream is away.
func noSlotError(t *Task) *envelope.Error {
	return envelope.Errorf(envelope.CodeUnavailable, "nothing was begun: no slot (runtime.concurrency) can be acquired, because JetStream or its bucket aee_slots cannot be reached").
		WithBackoff(time.Second).NotBegun(t.Envelope)
}

// handle calls the handler and turns a panic into an error.
func (h *host) handle(ctx context.Context, t *Task) (payload json.RawMessage, err error) {
	returned := false
	defer func() {
		if p := recover(); p == nil && !returned {
			h.fail(t, errors.New("the handler ended its goroutine"))
		} else if p != nil {
			h.counts.panics.Add(1)
			err = fmt.Errorf("panic: %v", p)
			h.log.Error("handler panicked", "id", t.Envelope.ID, "corr", t.Envelope.Corr, "intent", t.Envelope.Intent, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	payload, err = h.Handler.Handle(ctx, t)
	returned = true
	return payload, err
}

// succeed sends the result, unless the task has ended already.
func (h *host) succeed(t *Task, payload json.RawMessage) {
	if !t.claim() {
		return
	}
	if t.run != nil {
		t.run.finish(payload, nil)
		return
	}
	reply := t.Envelope.Reply(envelope.TypeResult, payload)
	t.handed.Address(reply)
	h.count(t, nil)
	if err := h.sendReply(t, reply, nil); err != nil {
		// The result cannot be sent; the sender gets the error instead.
		problem := fault.ForPeer(err)
		h.logFailure(t, problem, err)
		h.service.Stats[t.endpoint()].Fail(problem)
		h.recordEnd(t, problem)
		h.answer(t, problem)
		return
	}
	h.recordEnd(t, nil)
}

// fail ends a task with an error, and reports whether it did: it does nothing if the task has
// ended already.
func (h *host) fail(t *Task, err error) (ended bool) {
	if ended = t.claim(); ended {
		h.failed(t, err)
	}
	return ended
}

// failed is fail for a caller for which t.claim has returned true.
func (h *host) failed(t *Task, err error) {
	problem := fault.ForPeer(err)
	h.logFailure(t, problem, err)
	if t.run != nil {
		t.run.finish(nil, problem)
		return
	}
	h.count(t, problem)
	h.answer(t, problem)
	h.recordEnd(t, problem)
}

// logFailure logs why a task failed: at level error if the agent or this worker is at fault, else
// at level debug.
func (h *host) logFailure(t *Task, problem *envelope.Error, err error) {
	level := h.log.Debug
	if problem.Code == envelope.CodeInternal && !errors.Is(err, ErrParked) && !errors.Is(err, ErrLost) {
		level = h.log.Error
	}
	e := t.Envelope
	level("task failed", "id", e.ID, "corr", e.Corr, "intent", e.Intent, "from", e.From, "to", e.To, "type", string(e.Type), "priority", string(e.Priority), "err", err)
}

// overdue fails the tasks whose deadline has passed, queued or running. The sender is
// answered now, whether or not the handler notices.
func (h *host) overdue(now time.Time, late []*Task) {
	waiting := map[*Task]bool{} // a hop that never began may be deadlocked with tasks that wait for it
	for _, t := range h.queue.Remove(func(t *Task) bool { return !t.Deadline.After(now) }) {
		waiting[t] = true
	}
	for _, t := range late {
		ended, err := t.claim(), deadlineError(t)
		unbegun := waiting[t] || t.placed.Load() && t.waited.Load() == 0 // read after claim: see run
		if l := h.joined(); unbegun && t.run == nil && l != nil && l.noSlots() {
			err = noSlotError(t)
		} else if waiting[t] && t.tree.Hop() {
			err.Message += "; it did not begin: all places for tasks of " + h.Entity + " were taken, perhaps by tasks that wait for this one"
		}
		if ended {
			h.failed(t, err)
		}
		t.stop(err)
	}
}

// end answers a task with an error and cancels its handler's context. It reports whether the task
// had not ended already.
func (h *host) end(t *Task, cause *envelope.Error) (ended bool) {
	ended = h.fail(t, cause)
	t.stop(cause)
	return ended
}

// claim (of the right to answer, not of a run) returns true to the one caller that may
// send the terminal envelope.
func (t *Task) claim() bool {
	if t.done.Swap(true) {
		return false
	}
	t.mu.Lock()
	t.sealed = true
	t.mu.Unlock()
	return true
}

// count counts the answer to a task, once. It is called before the answer is sent: a sender that
// asks for the stats then finds its task in them, and the errors are in the order of the answers.
func (h *host) count(t *Task, problem *envelope.Error) {
	if !t.counted {
		t.counted = true
		h.service.Stats[t.endpoint()].Record(t.ran(), problem)
	}
}

// recordEnd records statistics, telemetry, log and events of a task that was answered.
func (h *host) recordEnd(t *Task, problem *envelope.Error) {
	h.running.Remove(&t.entry)
	h.count(t, problem)
	h.node.tel.Ended(t.span, h.Entity, t.queued, time.Duration(t.waited.Load()), problem)
	if intents.Reserved(t.Envelope.Intent) {
		return
	}
	h.logEnd(t, problem)
	if problem != nil {
		h.events.taskEvent(intents.TaskFailed, t, problem)
	} else {
		h.events.taskEvent(intents.TaskFinished, t, nil)
	}
}
