package agents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// toolCalls makes the tool calls of the model's last turn, a bounded number at
// once, and appends their results to the conversation in the order of the
// calls. A tool that fails does not fail the run: its error goes to the model.
func (l *loop) toolCalls(ctx context.Context, task *mesh.Task, r *run) error {
	if err := l.lostCalls(ctx, task, r); err != nil {
		return err
	}
	if err := l.refuseCalls(task, r); err != nil {
		return err
	}
	for open := r.callable(); len(open) > 0; open = r.callable() {
		if err := l.callTools(ctx, task, r, open); err != nil {
			return err
		}
		if isClosed(r.journal.StopRequested()) {
			// The commit includes the outcomes of the calls: a call whose line
			// says in_flight would keep the run from parking.
			if err := r.journal.Commit(ctx, state.Step{Kind: state.StepPause}, r.save); err != nil {
				return err
			}
		}
	}
	if waiting := r.open(); len(waiting) > 0 {
		return parkCalls(ctx, task, r, waiting)
	}
	if err := r.commitCalls(ctx, nil); err != nil {
		return err
	}
	for _, c := range r.calls {
		r.messages = append(r.messages, *c.receipt)
	}
	calls := r.calls
	r.calls, r.phase = nil, phaseModel
	return l.afterCalls(ctx, task, r, calls)
}

// parkCalls parks a run whose calls wait for people, until one of them answers.
func parkCalls(ctx context.Context, task *mesh.Task, r *run, waiting []*toolCall) error {
	var wake mesh.Wake
	for _, c := range waiting {
		wake.On = append(wake.On, *c.wait)
	}
	return task.Run().ParkUntil(ctx, wake, r.save)
}

// refuseCalls answers, with an error for the model, the calls that cannot be
// made: unknown tools, and a call in which the model's turn was cut off.
func (l *loop) refuseCalls(task *mesh.Task, r *run) error {
	for i, c := range r.calls {
		var refused *tool.Error
		switch {
		case c.receipt != nil:
			continue
		case i >= maxCalls:
			r.recordReceipt(c, state.EffectFailed, model.ToolFailure(c.ToolCall, fmt.Sprintf("not called: at most %d calls in one turn", maxCalls)))
			continue
		case r.tools.tools[c.Name] == nil:
			refused = r.tools.missing(c.Name)
		case r.cut && i == len(r.calls)-1 && c.effect.Status == state.EffectPending:
			// Its arguments may be incomplete, and an adapter may have turned missing ones into
			// {}.
			refused = &tool.Error{Kind: tool.ErrFailed, Tool: c.Name, Message: "not called: your turn reached its token limit before this call was complete; make it again, with less text before it"}
		default:
			continue
		}
		l.recordFailure(task, r, c, refused)
		if err := errors.Join(l.showCall(task, c.ToolCall), l.showResult(task, c.ToolCall, 0, refused)); err != nil {
			return err
		}
	}
	return nil
}

// callTools makes calls until all have ended. If the run is asked to stop, it
// begins no more. Calls that get a place at the same time begin together, after
// one commit that marks them as in flight.
func (l *loop) callTools(ctx context.Context, task *mesh.Task, r *run, calls []*toolCall) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	places := make(chan struct{}, l.tools.parallel)
	asked := r.journal.StopRequested()
	for len(calls) > 0 && !isClosed(asked) {
		n := enter(ctx, places, asked, len(calls))
		if n == 0 {
			break
		}
		batch := calls[:n]
		calls = calls[n:]
		r.begin(batch)
		if err := r.commitCalls(ctx, nil); err != nil {
			cancel(err)
			break
		}
		for _, c := range batch {
			if err := l.showCall(task, c.ToolCall); err != nil {
				cancel(err)
			}
			wg.Go(func() {
				defer func() { <-places }()
				if err := l.toolCall(ctx, task, r, c); err != nil {
					cancel(err)
				}
			})
		}
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// enter takes as many free places as there are, at most n, and waits for the
// first. It returns 0 if ctx ends or stop is closed before a place is free.
func enter(ctx context.Context, places chan<- struct{}, stop <-chan struct{}, n int) int {
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
		return 0
	case <-stop:
		return 0
	}
	for taken := 1; taken < n; taken++ {
		select {
		case places <- struct{}{}:
		default:
			return taken
		}
	}
	return n
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// toolCall makes one call and commits its receipt. A returned error is never
// the tool's own: it means that the run cannot go on.
func (l *loop) toolCall(ctx context.Context, task *mesh.Task, r *run, c *toolCall) error {
	begun := time.Now()
	making := tool.WithConfirm(tool.WithKey(ctx, c.effect.Key), func() error {
		if !r.beginAgain(c) {
			return context.DeadlineExceeded
		}
		return r.commitCalls(ctx, c)
	})
	result, err := callTool(making, l.header, c, r.tools.entries[c.Name], r.tools.tools[c.Name])
	var failure *tool.Error
	var waits *mesh.PendingError
	switch {
	case errors.As(err, &waits):
		r.suspend(c, waits.Wait)
		return nil
	case err == nil:
		r.recordReceipt(c, state.EffectDone, model.ToolResult(c.ToolCall, result))
	case errors.As(err, &failure):
		l.recordFailure(task, r, c, failure)
	default:
		return err // ctx has ended
	}
	if err := r.commitCalls(ctx, c); err != nil {
		return err
	}
	return l.showResult(task, c.ToolCall, time.Since(begun), failure)
}

// recordFailure records a call as failed: the model gets the error, and the
// operator a line in the log. Text that may come from the model or the tool is
// logged at level debug only.
func (l *loop) recordFailure(task *mesh.Task, r *run, c *toolCall, failure *tool.Error) {
	e := task.Envelope
	words, why := "a tool's call failed", error(failure)
	var missing *secret.Error
	switch {
	case errors.As(failure.Err, &missing): // for the operator to repair, not for the model
		words, why = "a tool's credential could not be read", missing
	case failure.Kind == tool.ErrRefused, errors.Is(failure.Err, outbound.ErrRefused): // for the operator, too
		words, why = "a tool's call was refused", failure.Err
	case failure.Kind == tool.ErrInvalidArguments: // the message may quote them
		why = failure.Kind
	}
	attrs := []any{"id", e.ID, "corr", e.Corr, "entity", e.To, "intent", e.Intent, "tool", c.Name, "err", why}
	if cause, told := failure.Err.(slog.LogValuer); told {
		attrs = append(attrs, "cause", cause)
	} else if l.log.Enabled(context.Background(), slog.LevelDebug) {
		attrs = append(attrs, "message", failure.Message, "cause", failure.Err)
	}
	l.log.Warn(words, attrs...)
	status := state.EffectFailed
	if failure.Kind == tool.ErrTimeout {
		status = state.EffectTimedOut
	}
	r.recordReceipt(c, status, model.ToolFailure(c.ToolCall, failure.Kind.Error()+": "+failure.Message))
}
