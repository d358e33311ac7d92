package calls

import (
	"context"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// callPatience is how long a live call is retried while no worker is online or all are busy.
const callPatience = 5 * time.Second

// callPause is the longest pause between two tries within callPatience. The server picks a
// worker at random for each try, so several tries are needed to reach one with a free place.
const callPause = callPatience / 10

// warnWaiting is the number of the failed try after which a warning is logged: after about
// five seconds.
const warnWaiting = 6

// errLane ends a live call that waited for a worker and found that the receiver has a durable
// lane by now.
var errLane = errors.New("the called agent takes tasks over the durable lane")

// live sends a call over the live lane. It retries after errors that say that the task
// was not begun.
func (o *outgoing) live(ctx context.Context, task *envelope.Envelope) error {
	if o.Run != nil {
		o.stopEarlier(o.c.Key)
	}
	opts := client.SendOptions{NoCancel: true, OnStream: o.c.OnStream}
	begun, waiting := "", "" // ids; of a task that waits for a worker, which the run's record names until then
	defer func() {
		if waiting != "" {
			o.remove(waiting)
		}
	}()
	var last error
	for try := 0; ; try++ {
		if timeout, _ := o.times(ctx, o.a.Began); begun != task.ID && timeout > 0 {
			o.a.TaskID = task.ID
			if err := o.begin(ctx, try == 0); err != nil {
				return err
			}
			begun, waiting = task.ID, task.ID
		}
		// begin may have waited for the store, longer than a ts is fresh.
		task.TS = envelope.Now()
		timeout, until := o.times(ctx, o.a.Began)
		if most := o.MaxTimeout; timeout > most { // workers cap the timeout at MaxTimeout
			timeout, until = most, time.Now().Add(most+sender.Grace)
		}
		one := *task
		if err := o.ready(&one, timeout, false); err != nil {
			if last != nil {
				return last // the last reply says more than "no time is left"
			}
			return err
		}
		waiting = ""
		wait, cancel := context.WithDeadline(ctx, until)
		reply, err := o.Client.Send(wait, &one, opts)
		cancel()
		o.a.Envelope = reply
		if err == nil {
			return o.awaitJob(ctx, &one)
		}
		if reply == nil && !fault.IsCode(err, envelope.CodeNoResponders) {
			o.cancel(state.Call{ID: one.ID, To: one.To, Live: true})
			return err
		}
		waiting = one.ID
		problem, delay := sender.WorthRetrying(err, try)
		switch {
		case problem == nil:
			return err
		case problem.Code == envelope.CodeNoResponders && o.Run != nil && !o.c.FailFast:
			if try == warnWaiting {
				o.Log.Warn("a durable task waits because the agent that it calls has no worker", "id", o.Envelope.ID, "corr", o.Envelope.Corr, "to", o.c.To)
			}
			switch stop := o.awaitWorker(ctx, delay); {
			case errors.Is(stop, errLane), errors.Is(stop, errLaneUnknown), errors.Is(stop, ErrInterrupted):
				return stop
			case stop != nil:
				return err // says more than "the context has ended"
			}
		default:
			if delay = min(delay, callPause); time.Since(o.a.Began)+delay > callPatience || !pause.For(ctx, delay) {
				return err
			}
		}
		if problem.Code != envelope.CodeNoResponders {
			o.remove(one.ID)
			task.ID = envelope.NewID() // a worker has received the old id and would refuse it as a replay
		}
		last = err
	}
}

// awaitWorker sleeps between two tries of a durable task's call to an entity without
// workers. An error ends the tries; errLane: the entity has a durable lane now.
func (o *outgoing) awaitWorker(ctx context.Context, wait time.Duration) error {
	if !o.c.Uninterrupted {
		var end context.CancelCauseFunc
		ctx, end = context.WithCancelCause(ctx)
		defer end(context.Canceled)
		defer o.interrupt(end)()
	}
	if !pause.For(ctx, wait) {
		return context.Cause(ctx)
	}
	durable, err := o.hasLane(ctx)
	if durable {
		return errLane
	}
	return err
}

// stopEarlier cancels tasks that an earlier owner of the run sent over the live lane under the
// same key: their answers reach no caller any more.
func (o *outgoing) stopEarlier(key string) {
	for _, call := range o.Run.openCalls(key) {
		if call.Live && o.stop(call) {
			o.remove(call.ID)
		}
	}
}

// awaitJob waits for the result of a task that was answered with a job id: the agent does the
// task over the durable lane. Any other answer is the result itself.
func (o *outgoing) awaitJob(ctx context.Context, task *envelope.Envelope) error {
	var job struct {
		ID      string `json:"job_id"`
		Replies string `json:"replies"`
	}
	if o.Stores == nil || wire.ReadJSON(o.a.Envelope.Payload, &job) != nil || job.ID != task.ID || job.Replies == "" {
		o.remove(task.ID)
		return nil
	}
	if o.Run != nil {
		if err := o.Run.markJob(task.ID); err != nil {
			return err
		}
	}
	_, until := o.times(ctx, o.a.Began)
	wait, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	o.a.Durable = true
	reply, err := o.Client.Result(wait, task.To, task.ID, client.ResultOptions{Follow: true, OnStream: o.c.OnStream})
	o.a.Envelope = reply
	if reply == nil && err != nil {
		o.cancel(state.Call{ID: task.ID, To: task.To})
		return sender.Failure(task, err)
	}
	o.remove(task.ID)
	return err
}
