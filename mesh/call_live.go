package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
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

// callLive sends a call over the live lane. It retries after errors that say that the task
// was not begun.
func (t *Task) callLive(ctx context.Context, c *Call, task *envelope.Envelope, a *Answer) error {
	n := t.host.node
	if t.run != nil {
		t.stopEarlier(c.Key)
	}
	opts := SendOptions{NoCancel: true, OnStream: c.OnStream}
	begun := ""
	var last error
	for try := 0; ; try++ {
		timeout, until := t.callTimes(ctx, c, a.Began)
		if most := n.cfg.MaxTimeout; timeout > most { // workers cap the timeout at MaxTimeout
			timeout, until = most, time.Now().Add(most+grace)
		}
		one := *task
		if err := t.ready(&one, timeout, false); err != nil {
			if last != nil {
				return last // the last reply says more than "no time is left"
			}
			return err
		}
		a.TaskID = one.ID
		if begun != one.ID {
			if err := t.begin(ctx, c, a, try == 0); err != nil {
				return err
			}
			begun = one.ID
		}
		wait, cancel := context.WithDeadline(ctx, until)
		reply, err := n.Send(wait, &one, opts)
		cancel()
		a.Envelope = reply
		if err == nil {
			return t.awaitJob(ctx, c, &one, a)
		}
		if reply == nil && !isCode(err, envelope.CodeNoResponders) {
			t.stopCall(state.Call{ID: one.ID, To: one.To, Live: true})
			return err
		}
		t.removeCall(one.ID)
		problem, pause := worthRetrying(err, try)
		switch {
		case problem == nil:
			return err
		case problem.Code == envelope.CodeNoResponders && t.run != nil && !c.FailFast:
			if try == warnWaiting {
				t.host.log.Warn("a durable task waits because the agent that it calls has no worker", "id", t.Envelope.ID, "corr", t.Envelope.Corr, "to", c.To)
			}
			switch stop := t.awaitWorker(ctx, c, pause); {
			case errors.Is(stop, errLane), errors.Is(stop, ErrInterrupted):
				return stop
			case stop != nil:
				return err // says more than "the context has ended"
			}
		default:
			if pause = min(pause, callPause); time.Since(a.Began)+pause > callPatience || sleep(ctx, pause) != nil {
				return err
			}
		}
		if problem.Code != envelope.CodeNoResponders {
			task.ID = envelope.NewID() // a worker has received the old id and would refuse it as a replay
		}
		task.TS, last = envelope.Now(), err
	}
}

// awaitWorker sleeps between two tries of a durable task's call to an entity without
// workers. An error ends the tries; errLane: the entity has a durable lane now.
func (t *Task) awaitWorker(ctx context.Context, c *Call, pause time.Duration) error {
	if !c.Uninterrupted {
		var stop func()
		ctx, stop = t.interruptible(ctx)
		defer stop()
	}
	if err := sleep(ctx, pause); err != nil {
		return err
	}
	if t.hasLane(ctx, c) {
		return errLane
	}
	return nil
}

// stopEarlier cancels tasks that an earlier owner of the run sent over the live lane under
// the same key: no caller waits for them any more.
func (t *Task) stopEarlier(key string) {
	for _, call := range t.run.openCalls(key) {
		if call.Live {
			t.host.stopLive(call)
			t.removeCall(call.ID)
		}
	}
}

// awaitJob waits for the result of a task that was answered with a job id: the agent does the
// task over the durable lane. Any other answer is the result itself.
func (t *Task) awaitJob(ctx context.Context, c *Call, task *envelope.Envelope, a *Answer) error {
	var job struct {
		ID      string `json:"job_id"`
		Replies string `json:"replies"`
	}
	n := t.host.node
	if n.cfg.Durable == nil || json.Unmarshal(a.Envelope.Payload, &job) != nil || job.ID != task.ID || job.Replies == "" {
		t.removeCall(task.ID)
		return nil
	}
	_, until := t.callTimes(ctx, c, a.Began)
	wait, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	a.Durable = true
	reply, err := n.Result(wait, task.To, task.ID, ResultOptions{Follow: true, OnStream: c.OnStream})
	a.Envelope = reply
	if reply == nil && err != nil {
		t.stopCall(state.Call{ID: task.ID, To: task.To})
		return sendError(task, err)
	}
	t.removeCall(task.ID)
	return err
}
