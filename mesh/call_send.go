package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
)

// callPatience is how long a live call waits for somebody to take it, where
// nobody is there or all are busy.
const callPatience = 5 * time.Second

// callTimes says how long the other may take, and until when its answer is waited
// for: a little longer, because its own E_TIMEOUT tells more, and a little less
// than t has, so that t can still say so.
func (t *Task) callTimes(ctx context.Context, c *Call) (timeout time.Duration, until time.Time) {
	now := time.Now()
	left := t.Deadline.Sub(now)
	if own, ok := ctx.Deadline(); ok {
		left = min(left, own.Sub(now))
	}
	margin := min(left/20, grace)
	timeout = left - margin
	if c.Timeout > 0 && c.Timeout < timeout {
		timeout = c.Timeout
		margin = min(grace, left-timeout)
	}
	return timeout, now.Add(timeout + margin/2)
}

// ready writes a call's deadline and signs it.
func (t *Task) ready(task *envelope.Envelope, timeout time.Duration) error {
	if timeout <= 0 {
		return envelope.Errorf(envelope.CodeTimeout, "no time is left to call %s", task.To)
	}
	task.Requires = withMember(task.Requires, "timeout_ms", mustJSON(max(1, timeout.Milliseconds())))
	if s := t.host.Signer; s != nil {
		return s.Sign(task)
	}
	return nil
}

func withMember(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	members := map[string]json.RawMessage{}
	if object != nil {
		_ = json.Unmarshal(object, &members) // of our own making
	}
	members[name] = value
	return mustJSON(members)
}

// callLive sends a call over the live lane, again where nothing was done.
func (t *Task) callLive(ctx context.Context, c *Call, task *envelope.Envelope, a *Answer) error {
	begun := false
	opts := SendOptions{NoCancel: true, OnStream: c.OnStream}
	for try := 0; ; try++ {
		timeout, until := t.callTimes(ctx, c)
		timeout = min(timeout, t.host.node.cfg.MaxTimeout)
		until = earlier(until, time.Now().Add(timeout+grace))
		one := *task
		if err := t.ready(&one, timeout); err != nil {
			return err
		}
		if !begun && c.Begun != nil {
			c.Begun(one.ID, false)
		}
		begun = true
		a.TaskID = one.ID
		wait, cancel := context.WithDeadline(ctx, until)
		reply, err := t.host.node.Send(wait, &one, opts)
		cancel()
		a.Envelope = reply
		if reply == nil && err != nil && t.giveUpCall(ctx, err) {
			t.host.abandon(&one)
		}
		if err == nil {
			return t.follow(ctx, c, &one, a)
		}
		problem, pause := worthRetrying(err, try)
		if problem == nil || time.Since(a.Began)+pause > callPatience || sleep(ctx, pause) != nil {
			return err
		}
		if problem.Code != envelope.CodeNoResponders {
			task.ID, begun = envelope.NewID(), false // somebody has seen it
		}
		task.TS = envelope.Now()
	}
}

// follow waits for the result of a task that was answered with a job.
func (t *Task) follow(ctx context.Context, c *Call, task *envelope.Envelope, a *Answer) error {
	var job struct {
		ID      string `json:"job_id"`
		Replies string `json:"replies"`
	}
	n := t.host.node
	if n.cfg.Durable == nil || json.Unmarshal(a.Envelope.Payload, &job) != nil || job.ID != task.ID || job.Replies == "" {
		return nil
	}
	_, until := t.callTimes(ctx, c)
	wait, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	a.Durable = true
	reply, err := n.Result(wait, task.To, task.ID, ResultOptions{Follow: true, OnStream: c.OnStream})
	a.Envelope = reply
	if reply == nil && err != nil && t.giveUpCall(ctx, err) {
		t.host.cancelRun(task)
	}
	return sendError(task, err)
}

// callDurable sends a call over the durable lane, or finds the one that was sent
// under its key.
func (t *Task) callDurable(ctx context.Context, c *Call, task *envelope.Envelope, a *Answer) error {
	n := t.host.node
	task.ID = t.CallID(c.Key)
	a.TaskID = task.ID
	timeout, until := t.callTimes(ctx, c)
	if err := t.ready(task, timeout); err != nil {
		return err
	}
	if c.Begun != nil {
		c.Begun(task.ID, true)
	}
	wait, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if !c.Whole {
		var stop func()
		wait, stop = t.interruptible(wait)
		defer stop()
	}
	spanned, span := n.tel.startSend(wait, task)
	_, reply, err := n.Perform(spanned, task, SubmitOptions{}, ResultOptions{OnStream: c.OnStream})
	endSend(span, err)
	a.Envelope = reply
	if reply == nil && err != nil && !errors.Is(err, ErrInterrupted) && t.giveUpCall(ctx, err) {
		t.host.cancelRun(task)
	}
	return sendError(task, err)
}

// interruptible is ctx, but ends with [ErrInterrupted] when somebody asks t's run
// to stop.
func (t *Task) interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-t.run.Asked():
			cancel(ErrInterrupted)
		case <-t.run.lane.parting:
			cancel(ErrInterrupted)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-done
	}
}

// giveUpCall reports whether nobody will want the answer of a call that ended
// without one: not so where the run goes on elsewhere and will ask for it.
func (t *Task) giveUpCall(ctx context.Context, err error) bool {
	t.ctxMu.Lock()
	cause := t.stopCause
	t.ctxMu.Unlock()
	switch {
	case cause != nil && t.run != nil:
		code := border(cause).Code
		return code == envelope.CodeCancelled || code == envelope.CodeTimeout
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return true
	}
	var problem *envelope.Error
	return !errors.As(err, &problem) || problem.Code != envelope.CodeNoResponders
}

// abandon asks an agent, in this one's name, to stop a live task.
func (h *host) abandon(task *envelope.Envelope) {
	e := h.cancelOf(task, false)
	if e == nil {
		return
	}
	to, err := h.node.subjects.Ctl(task.To)
	if err == nil {
		var body []byte
		if body, err = e.AppendJSON(nil); err == nil {
			err = h.node.publish(to, body, nil)
		}
	}
	if err != nil {
		h.log.Warn("call not cancelled", "id", task.ID, "to", task.To, "err", err)
	}
}

// cancelRun ends a durable task of this agent's.
func (h *host) cancelRun(task *envelope.Envelope) {
	e := h.cancelOf(task, true)
	if e == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if _, err := h.node.sendCommand(ctx, task.To, e); err != nil && !isCode(err, envelope.CodeNotFound) {
		h.log.Warn("call not cancelled", "id", task.ID, "to", task.To, "err", err)
	}
}

func isCode(err error, code envelope.Code) bool {
	var e *envelope.Error
	return errors.As(err, &e) && e.Code == code
}

// cancelOf is the command to cancel a task of this agent's, signed.
func (h *host) cancelOf(task *envelope.Envelope, durable bool) *envelope.Envelope {
	e := envelope.New(envelope.TypeTask, h.Entity, task.To, intents.TaskCancel, mustJSON(intents.CancelTask{ID: task.ID, Reason: "its caller gave up", Durable: durable}))
	e.Priority = envelope.PriorityUrgent
	if h.Signer != nil {
		if err := h.Signer.Sign(e); err != nil {
			h.log.Warn("command not signed", "id", task.ID, "to", task.To, "err", err)
			return nil
		}
	}
	return e
}

// lastRetry is the command that opened a run again which had ended, "" where none
// did.
func lastRetry(c *state.Checkpoint) (last string) {
	for _, id := range c.Mesh.Commands {
		if strings.HasPrefix(id, "retry.") {
			last = id
		}
	}
	return last
}
