package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
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
// a little less than the rest of t's time, so that t can still answer.
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
	return o.host.node.sign(task, o.host.Signer, durable)
}

// withMember returns a copy of a JSON object with one member set. The object must be valid.
func withMember(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	members := map[string]json.RawMessage{}
	if object != nil {
		_ = json.Unmarshal(object, &members)
	}
	members[name] = value
	return objectOf(members)
}

// moreMember returns a copy of a JSON object with one more member, a name that the object does
// not have. The object must be one that objectOf has made.
func moreMember(object json.RawMessage, name string, value []byte) json.RawMessage {
	out := make([]byte, 0, len(object)+len(name)+len(value)+4)
	if out = append(out, object[:len(object)-1]...); len(out) > 1 {
		out = append(out, ',')
	}
	out = append(envelope.AppendString(out, name), ':')
	return append(append(out, value...), '}')
}

// objectOf encodes members, whose values are valid JSON. It is json.Marshal without its checks
// of what this package has encoded itself.
func objectOf(members map[string]json.RawMessage) json.RawMessage {
	object := json.RawMessage("{}")
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := members[name]
		if value == nil {
			value = json.RawMessage("null")
		}
		object = moreMember(object, name, value)
	}
	return object
}

// begin prepares the sending of a call. It counts the call, the first time only, and records
// the call in the run's checkpoint.
func (o *outgoing) begin(ctx context.Context, first bool) error {
	var err error
	var counted bounds.Counted
	if first {
		counted = o.tree.CountTask()
	}
	if o.run != nil { // writes while the server counts
		err = o.run.recordCall(ctx, state.Call{Key: o.c.Key, ID: o.a.TaskID, To: o.c.To, Live: !o.a.Durable, At: o.run.lane.clock.now()})
	}
	if err == nil && first {
		err = counted.Check(ctx)
	}
	if err == nil {
		err = o.tree.BeginTree(ctx)
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
	if o.run != nil {
		o.run.callEnded(id)
	}
}

// cancel cancels a call whose answer is not needed any more. It does nothing if the task of
// a durable run is being stopped: when the run ends, [replyWriter.stopCalls] cancels its calls; when
// another worker continues the run, its handler sends the same calls again.
func (o *outgoing) cancel(call state.Call) {
	if o.run != nil && o.stopped() {
		return
	}
	if call.Live {
		o.host.stopLive(call)
	} else if !o.host.stopDurable(call) {
		return // the worker that ends the run tries again
	}
	o.remove(call.ID)
}

// stopped reports whether the task's context has ended.
func (t *Task) stopped() bool {
	t.ctxMu.Lock()
	defer t.ctxMu.Unlock()
	return t.stopCause != nil
}

// stopsAtOnce bounds the calls that are cancelled concurrently.
const stopsAtOnce = 64

// stopCalls cancels the calls of a run that has ended. It runs before the run's
// message is acked: if this worker dies meanwhile, the next one repeats it.
func (rw *replyWriter) stopCalls(c *state.Checkpoint) {
	if len(c.Mesh.Calls) == 0 {
		return
	}
	var all sync.WaitGroup
	places := make(chan struct{}, stopsAtOnce)
	for _, call := range c.Mesh.Calls {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if call.Live {
				rw.host.stopLive(call)
			} else {
				rw.host.stopDurable(call)
			}
		})
	}
	all.Wait()
}

// stopLive asks the workers of another agent to cancel a task that this agent sent
// over the live lane. It is best effort: if the command is lost, the deadline ends the
// task.
func (h *host) stopLive(call state.Call) {
	if err := h.publishCancel(call.To, cancelOf(call)); err != nil {
		h.log.Warn("call not cancelled", "id", call.ID, "to", call.To, "err", err)
	}
}

// stopDurable cancels a task that this agent sent over the durable lane, and reports
// whether that is certain: a worker has applied or noted the command, or the command
// is stored.
func (h *host) stopDurable(call state.Call) bool {
	err := h.sendStop(call)
	if err != nil {
		h.log.Warn("call not cancelled", "id", call.ID, "to", call.To, "err", err)
	}
	return err == nil
}

// sendStop sends the cancel to the workers, and stores it in the queue if none
// answers. Then it sends it again: a worker that has claimed the run meanwhile
// receives the second message sooner than it reads a queue while all its places are taken.
func (h *host) sendStop(call state.Call) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	stored := false
	for range 3 {
		e, err := h.newCommand(call.To, cancelOf(call))
		if err != nil {
			return err
		}
		reply, err := h.node.sender.RequestControl(ctx, e, sender.ControlWait)
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
		if _, err := h.node.Submit(ctx, e, client.SubmitOptions{}); err != nil {
			return err
		}
		stored = true
	}
	return nil
}

// cancelOf returns the command to cancel a task that this agent sent.
func cancelOf(call state.Call) intents.CancelTask {
	return intents.CancelTask{ID: call.ID, Reason: "the caller has ended or no longer needs the answer", Durable: !call.Live}
}
