package calls

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/bounds"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/state"
)

// times returns the timeout of the called task, and the time until which the caller waits.
// The caller waits a little longer than the timeout, to get the receiver's own E_TIMEOUT, and
// a little less than the rest of the task's own time, so that the task can still answer.
func (o *outgoing) times(ctx context.Context, began time.Time) (timeout time.Duration, until time.Time) {
	now := time.Now()
	left := o.Deadline.Sub(now)
	if own, ok := ctx.Deadline(); ok {
		left = min(left, own.Sub(now))
	}
	margin := min(left/20, sender.Grace)
	timeout = left - margin
	if own := o.c.Timeout - now.Sub(began); o.c.Timeout > 0 && own < timeout {
		timeout = own
		margin = min(sender.Grace, left-timeout)
	}
	return timeout, now.Add(timeout + margin/2)
}

// ready writes the timeout into the task of a call and signs the task.
func (o *outgoing) ready(task *envelope.Envelope, timeout time.Duration, durable bool) error {
	if timeout <= 0 {
		return envelope.Errorf(envelope.CodeTimeout, "no time is left to call %s", task.To)
	}
	task.Requires = moreMember(task.Requires, "timeout_ms", strconv.AppendInt(nil, max(1, timeout.Milliseconds()), 10))
	return o.sign(task, durable)
}

// begin prepares the sending of a call. It counts the call, the first time only, and records
// the call in the run's checkpoint.
func (o *outgoing) begin(ctx context.Context, first bool) error {
	var err error
	var counted bounds.Counted
	if first {
		counted = o.Tree.CountTask()
	}
	if o.Run != nil { // writes while the server counts
		err = o.Run.addCall(ctx, state.Call{Key: o.c.Key, ID: o.a.TaskID, To: o.c.To, Live: !o.a.Durable, At: o.Now()})
	}
	if err == nil && first {
		err = counted.Check(ctx)
	}
	if err == nil {
		err = o.Tree.BeginTree(ctx)
	}
	if err != nil {
		o.remove(o.a.TaskID)
		return err
	}
	if o.c.Begun != nil {
		o.c.Begun(o.a.TaskID, o.a.Durable)
	}
	return nil
}

// remove removes a call from those that the end of the run must cancel.
func (o *outgoing) remove(id string) {
	if o.Run != nil {
		o.Run.Record.ended(id)
	}
}

// cancel cancels a call whose answer is not needed any more. It does nothing if the task of
// a durable run is being stopped: when the run ends, [Agent.Stop] cancels its calls; when
// another worker continues the run, its handler sends the same calls again.
func (o *outgoing) cancel(call state.Call) {
	if o.Run != nil && o.Port.Stopped() {
		return
	}
	if call.Live {
		o.stopLive(call)
	} else if !o.stopDurable(call) {
		return // the worker that ends the run tries again
	}
	o.remove(call.ID)
}

// stopsAtOnce bounds the calls that are cancelled concurrently.
const stopsAtOnce = 64

// Stop cancels the calls of a run that has ended.
func (a *Agent) Stop(open []state.Call) {
	if len(open) == 0 {
		return
	}
	var all sync.WaitGroup
	places := make(chan struct{}, stopsAtOnce)
	for _, call := range open {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if call.Live {
				a.stopLive(call)
			} else {
				a.stopDurable(call)
			}
		})
	}
	all.Wait()
}

// stopLive asks the workers of another agent to cancel a task that this agent sent
// over the live lane. It is best effort: if the command is lost, the deadline ends the
// task.
func (a *Agent) stopLive(call state.Call) {
	e, err := a.newCancel(call)
	if err == nil {
		err = a.Sender.PublishControl(e)
	}
	if err != nil {
		a.Log.Warn("call not cancelled", "id", call.ID, "to", call.To, "err", err)
	}
}

// stopDurable cancels a task that this agent sent over the durable lane, and reports
// whether that is certain: a worker has applied or noted the command, or the command
// is stored.
func (a *Agent) stopDurable(call state.Call) bool {
	err := a.sendStop(call)
	if err != nil {
		a.Log.Warn("call not cancelled", "id", call.ID, "to", call.To, "err", err)
	}
	return err == nil
}

// sendStop sends the cancel to the workers, and stores it in the queue if none
// answers. Then it sends it again: a worker that has claimed the run meanwhile
// receives the second message sooner than it reads a queue while all its places are taken.
func (a *Agent) sendStop(call state.Call) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	stored := false
	for range 3 {
		e, err := a.newCancel(call)
		if err != nil {
			return err
		}
		reply, err := a.Sender.RequestControl(ctx, e, sender.ControlWait)
		switch {
		case err == nil && reply.Type == envelope.TypeError && envelope.ErrorOf(reply).Retryable:
			// This agent is over its quota of commands, or no more commands can be noted for the
			// task: the command waits in the queue.
			if stored {
				return nil
			}
		case err == nil && reply.Type == envelope.TypeError && !fault.IsCode(envelope.ErrorOf(reply), envelope.CodeNotFound):
			return envelope.ErrorOf(reply)
		case err == nil, stored && errors.Is(err, nats.ErrNoResponders):
			return nil
		case stored:
			continue
		}
		if _, err := a.Client.Submit(ctx, e, client.SubmitOptions{}); err != nil {
			return err
		}
		stored = true
	}
	return nil
}

// newCancel returns the command to cancel a task that this agent sent, signed.
func (a *Agent) newCancel(call state.Call) (*envelope.Envelope, error) {
	e := sender.NewCommand(a.Entity, call.To, intents.CancelTask{ID: call.ID, Reason: "the caller has ended or no longer needs the answer", Durable: !call.Live})
	return e, a.sign(e, false)
}
