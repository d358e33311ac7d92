package calls

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/state"
)

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
			a.stop(call)
		})
	}
	all.Wait()
}

// stop cancels a call, and reports whether it need not be cancelled again.
func (a *Agent) stop(call state.Call) bool {
	if call.Live && !call.Job {
		a.stopLive(call)
		return true
	}
	return a.stopDurable(call)
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
	ctx, cancel := context.WithTimeout(context.Background(), sched.StoreTimeout)
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
	e := sender.NewCommand(a.Entity, call.To, intents.CancelTask{ID: call.ID, Reason: "the caller has ended or no longer needs the answer", Durable: !call.Live || call.Job})
	return e, a.sign(e, false)
}
