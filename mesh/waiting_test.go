package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

func TestWorkersOfOneEntityShareItsQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const tasks = 400
	var ran [2]atomic.Int64
	var seen sync.Map
	for i := range ran {
		r.serve(r.node(mesh.Config{}), mesh.Agent{Concurrency: 4, Queue: tasks, Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
			ran[i].Add(1)
			if _, twice := seen.LoadOrStore(task.Envelope.ID, true); twice {
				return nil, errors.New("ran twice")
			}
			return nil, nil
		})})
	}
	inbox := r.nc.NewInbox()
	answers := r.listen(inbox)
	for range tasks {
		if err := r.nc.PublishRequest(reviewer, inbox, encode(t, newTask(reviewer, "code.review", `{}`))); err != nil {
			t.Fatal(err)
		}
	}
	for range tasks {
		if e := parse(t, within(t, "an answer", answers).Data); e.Type != envelope.TypeResult {
			t.Fatalf("%s", e.Payload)
		}
	}
	if a, b := ran[0].Load(), ran[1].Load(); a+b != tasks || a == 0 || b == 0 {
		t.Errorf("the workers ran %d and %d of %d tasks", a, b, tasks)
	}
}

func TestConcurrencyIsNeverExceeded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const concurrency, tasks = 3, 60
	var now, most atomic.Int64
	full := make(chan struct{}, tasks)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Concurrency: concurrency, Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if n == concurrency {
			full <- struct{}{}
		}
		<-full // the first tasks wait for one another, so that they must run at once
		full <- struct{}{}
		return nil, nil
	})})
	inbox := r.nc.NewInbox()
	answers := r.listen(inbox)
	for range tasks {
		r.nc.PublishRequest(reviewer, inbox, encode(t, newTask(reviewer, "code.review", `{}`)))
	}
	for range tasks {
		within(t, "an answer", answers)
	}
	equal(t, "most at once", most.Load(), int64(concurrency))
}

func TestBusyBeyondTheQueue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ concurrency, queue, waiting int }{{1, -1, 0}, {1, 1, 1}, {2, 3, 3}} {
		t.Run(fmt.Sprintf("concurrency %d queue %d", c.concurrency, c.queue), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			g := newGate(t)
			r.serve(r.node(mesh.Config{}), mesh.Agent{Concurrency: c.concurrency, Queue: c.queue, Handler: g})
			var answers []chan *nats.Msg
			for range c.concurrency {
				answers = append(answers, r.send(newTask(reviewer, "code.review", `{}`)))
			}
			for range c.concurrency {
				within(t, "a task to begin", g.entered)
			}
			for range c.waiting {
				answers = append(answers, r.send(newTask(reviewer, "code.review", `{}`)))
			}
			refused := newTask(reviewer, "code.review", `{}`)
			want := envelope.Errorf(envelope.CodeBusy, "the queue of this worker of agent.reviewer is full").WithBackoff(250 * time.Millisecond)
			same(t, r.request(refused), refused.ReplyError(want))
			g.open()
			for _, a := range answers {
				equal(t, "type", parse(t, within(t, "a result", a).Data).Type, envelope.TypeResult)
			}
			equal(t, "type", r.request(newTask(reviewer, "code.review", `{}`)).Type, envelope.TypeResult)
		})
	}
}

func TestPrioritiesAreDrawnByWeightOverTheWire(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	r.serve(r.node(mesh.Config{Quotas: mesh.Quotas{UnknownCap: envelope.PriorityUrgent}}), mesh.Agent{Handler: g})
	r.send(newTask(reviewer, "code.review", `{}`))
	within(t, "the first task", g.entered)
	const each = 16
	inbox := r.nc.NewInbox()
	for i := len(envelope.Priorities) - 1; i >= 0; i-- {
		for range each {
			e := newTask(reviewer, "code.review", `{}`)
			e.Priority = envelope.Priorities[i]
			r.nc.PublishRequest(reviewer, inbox, encode(t, e))
		}
	}
	r.ping(reviewer) // all are queued
	g.open()
	var order []envelope.Priority
	for range each * len(envelope.Priorities) {
		order = append(order, within(t, "a task", g.entered).Envelope.Priority)
	}
	count := map[envelope.Priority]int{}
	for _, p := range order[:14] { // the first task of all took one of the two normal ones
		count[p]++
	}
	equal(t, "the first round", count, map[envelope.Priority]int{"urgent": 8, "high": 4, "normal": 1, "low": 1})
	equal(t, "the first task", order[0], envelope.PriorityUrgent)
}

func TestDeadlineAnswersThoughTheHandlerIgnoresIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		node     mesh.Config
		agent    time.Duration
		requires string
		want     time.Duration
	}{
		{"the task's own", mesh.Config{}, 0, `{"timeout_ms":30}`, 30 * time.Millisecond},
		{"a fraction of a millisecond", mesh.Config{}, 0, `{"timeout_ms":0.5}`, time.Millisecond},
		{"capped by the node", mesh.Config{MaxTimeout: 30 * time.Millisecond}, 0, `{"timeout_ms":1e9}`, 30 * time.Millisecond},
		{"capped by the agent", mesh.Config{}, 30 * time.Millisecond, `{"timeout_ms":60000}`, 30 * time.Millisecond},
		{"the node's default", mesh.Config{DefaultTimeout: 30 * time.Millisecond}, 0, `{"evidence":true}`, 30 * time.Millisecond},
		{"the node's default capped by its maximum", mesh.Config{MaxTimeout: 30 * time.Millisecond}, 0, `null`, 30 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			g := newGate(t)
			r.serve(r.node(c.node), mesh.Agent{Handler: g, Timeout: c.agent})
			task := newTask(reviewer, "code.review", `{}`)
			if c.requires != "null" {
				requiring(task, c.requires)
			}
			before := time.Now()
			same(t, r.request(task), task.ReplyError(envelope.Errorf(envelope.CodeTimeout, "not done within %v", c.want)))
			if took := time.Since(before); took < c.want {
				t.Errorf("answered after %v", took)
			}
			select {
			case entered := <-g.entered: // or its time was over while it waited
				equal(t, "what the handler sees", entered.Requires.Timeout, c.want)
			default:
			}
		})
	}
}

// The limit is told in round numbers: a sender asks for a little less time than it
// has itself.
func TestALimitIsToldInRoundNumbers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: newGate(t), Concurrency: 2})
	for ms, want := range map[string]string{"99": "99ms", "128": "130ms"} {
		task := requiring(newTask(reviewer, "code.review", `{}`), `{"timeout_ms":`+ms+`}`)
		same(t, r.request(task), task.ReplyError(envelope.Errorf(envelope.CodeTimeout, "not done within %s", want)))
	}
}

func TestDeadlineAnswersTasksThatStillWait(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: g})
	r.send(newTask(reviewer, "code.review", `{}`))
	within(t, "the first task", g.entered)
	later := r.send(requiring(newTask(reviewer, "code.review", `{"n":2}`), `{"timeout_ms":60000}`))
	waits := requiring(newTask(reviewer, "code.review", `{"n":3}`), `{"timeout_ms":30}`)
	same(t, r.request(waits), waits.ReplyError(envelope.Errorf(envelope.CodeTimeout, "not done within 30ms")))
	g.open()
	equal(t, "the other one", parse(t, within(t, "a result", later).Data).Type, envelope.TypeResult)
	within(t, "the second task", g.entered)
	r.ping(reviewer)
	select {
	case task := <-g.entered:
		t.Errorf("a task ran after its deadline: %s", task.Envelope.Payload)
	default:
	}
}

func TestDeadlinesThatPassAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo, Concurrency: 4, Queue: 1000})
	inbox := r.nc.NewInbox()
	answers := r.listen(inbox)
	const tasks = 300
	for range tasks {
		r.nc.PublishRequest(reviewer, inbox, encode(t, requiring(newTask(reviewer, "code.review", `{}`), `{"timeout_ms":0.01}`)))
	}
	for range tasks {
		e := parse(t, within(t, "an answer", answers).Data)
		if e.Type == envelope.TypeError {
			equal(t, "code", errorOf(t, e).Code, envelope.CodeTimeout)
		}
	}
	r.ping(reviewer)
	empty(t, "after all answers", answers)
}
