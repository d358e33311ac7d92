package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// callPatience is how long a live call waits for somebody to take it, where
// nobody is there or all are busy.
const callPatience = 5 * time.Second

// callPause is the longest pause between two tries within callPatience. Which worker of
// an agent gets a try is chance: a few must meet the one that has a place.
const callPause = callPatience / 10

// warnWaiting is which vain try of a call is told the operator: after some five
// seconds.
const warnWaiting = 6

// errLane ends a live call that waited for a worker and found that the other has
// a durable lane now.
var errLane = errors.New("the other agent takes tasks over the durable lane")

// callLive sends a call over the live lane, again where nothing was done.
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
		if most := n.cfg.MaxTimeout; timeout > most { // nobody takes longer
			timeout, until = most, time.Now().Add(most+grace)
		}
		one := *task
		if err := t.ready(&one, timeout, false); err != nil {
			if last != nil {
				return last // it tells more
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
			return t.follow(ctx, c, &one, a)
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
		case problem.Code == envelope.CodeNoResponders && t.run != nil && !c.Impatient:
			if try == warnWaiting {
				t.host.log.Warn("a durable task waits: the agent that it calls has no worker", "id", t.Envelope.ID, "corr", t.Envelope.Corr, "to", c.To)
			}
			switch stop := t.awaitWorker(ctx, c, pause); {
			case errors.Is(stop, errLane), errors.Is(stop, ErrInterrupted):
				return stop
			case stop != nil:
				return err // it tells more than that ctx has ended
			}
		default:
			if pause = min(pause, callPause); time.Since(a.Began)+pause > callPatience || sleep(ctx, pause) != nil {
				return err
			}
		}
		if problem.Code != envelope.CodeNoResponders {
			task.ID = envelope.NewID() // somebody has seen the other one
		}
		task.TS, last = envelope.Now(), err
	}
}

// awaitWorker is a pause in the waiting of a durable task for an entity that nobody
// serves. An error ends the waiting.
func (t *Task) awaitWorker(ctx context.Context, c *Call, pause time.Duration) error {
	if !c.Whole {
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

// stopEarlier stops what an earlier owner of the run sent over the live lane under
// the same key: nobody waits for it any more.
func (t *Task) stopEarlier(key string) {
	for _, call := range t.run.openCalls(key) {
		if call.Live {
			t.host.stopLive(call)
			t.removeCall(call.ID)
		}
	}
}

// follow waits for the result of a task that was answered with a job: its agent
// does it over the durable lane.
func (t *Task) follow(ctx context.Context, c *Call, task *envelope.Envelope, a *Answer) error {
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
