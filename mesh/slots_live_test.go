package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// AAIF, Runtime Configuration: never more than runtime.concurrency instances at
// once, whichever lane a task comes on and whichever worker gets it.
func TestLiveAndDurableTasksShareTheMeshsLimit(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	var running, most atomic.Int64
	var mu sync.Mutex
	var once sync.Once
	served := map[string]int{}
	two := make(chan struct{})
	worker := func(name string) {
		r.serve(r.laneOn(natstest.Conn(t, r.srv), mesh.Config{}), mesh.Agent{Concurrency: 4, MeshConcurrency: 2,
			Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
				now := running.Add(1)
				defer running.Add(-1)
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
				}
				if now == 2 {
					once.Do(func() { close(two) })
				}
				<-two // the first one waits for another
				mu.Lock()
				defer mu.Unlock()
				served[name]++
				return json.RawMessage(`{}`), nil
			})})
	}
	for i := range 3 {
		worker(fmt.Sprint("worker ", i))
	}
	client := r.client()
	var durable []*envelope.Envelope
	for range 6 {
		durable = append(durable, newTask(reviewer, "code.review", `{}`))
		r.submit(client, durable[len(durable)-1])
	}
	var wait sync.WaitGroup
	for range 60 {
		wait.Go(func() {
			if _, err := client.Send(ctxFor(t), newTask(reviewer, "code.review", `{}`), mesh.SendOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for _, task := range durable {
		if _, err := r.result(client, task); err != nil {
			t.Error(err)
		}
	}
	if most.Load() != 2 {
		t.Errorf("%d ran at once, want 2", most.Load())
	}
	mu.Lock()
	defer mu.Unlock()
	if len(served) < 2 {
		t.Errorf("one worker kept the slots to itself: %v", served)
	}
}

// A handler that does not notice the end of its task keeps its slot: it still
// runs.
func TestASlotIsTakenUntilTheHandlerReturns(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	entered := make(chan struct{}, 10_000)
	agent := mesh.Agent{Concurrency: 1, MeshConcurrency: 1, Timeout: 100 * time.Millisecond, Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		entered <- struct{}{}
		<-g.release
		return json.RawMessage(`{}`), nil
	})}
	for range 2 {
		r.serve(r.laneOn(natstest.Conn(t, r.srv), mesh.Config{}), agent)
	}
	client := r.client()
	timeOut := func() {
		t.Helper()
		if _, err := client.Send(ctxFor(t), newTask(reviewer, "code.review", `{}`), mesh.SendOptions{}); codeOf(err) != envelope.CodeTimeout {
			t.Fatalf("a task that nobody ends: %v", err)
		}
	}
	eventually(t, "a handler is called", func() bool { // a task may time out before that
		timeOut()
		return len(entered) > 0
	})
	<-entered
	timeOut()
	select {
	case <-entered:
		t.Error("a second one was begun while the first still runs")
	default:
	}
	g.open()
	eventually(t, "its slot is free again", func() bool {
		_, err := client.Send(ctxFor(t), newTask(reviewer, "code.review", `{}`), mesh.SendOptions{})
		return err == nil
	})
}

// Tasks that wait for a slot when their worker stops are handed back.
func TestTasksWithoutASlotAreHandedBack(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	slots := slot.NewStore(r.js(r.nc), r.m, time.Hour)
	held, err := slots.Try(ctxFor(t), reviewer, 1, "somebody")
	if err != nil || held == nil {
		t.Fatal(held, err)
	}
	w := r.serve(r.laneOn(natstest.Conn(t, r.srv), mesh.Config{}), mesh.Agent{Concurrency: 2, MeshConcurrency: 1, Handler: echo})
	wanted := r.listen("aee.ctl." + reviewer)
	answer := r.send(newTask(reviewer, "code.review", `{}`))
	within(t, "others hear that a slot is wanted", wanted)
	w.stop()
	if e := parse(t, within(t, "the task is handed back", answer).Data); e.Type != envelope.TypeError || member(t, e.Payload, "code") != `"E_DRAINING"` {
		t.Errorf("answer %s", e.Payload)
	}
}

// What a slot costs is a write with each renewal: an agent that does nothing
// keeps one, however many it has used.
func TestAnIdleAgentKeepsOneSlot(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	g := newGate(t)
	slots := slot.NewStore(r.js(r.nc), r.m, 3*time.Second)
	r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { d.Slots = slots }), mesh.Agent{Concurrency: 8, MeshConcurrency: 8, Handler: g})
	held := func() int {
		all, err := slots.List(ctxFor(t), reviewer)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	client := r.client()
	tasks := make([]*envelope.Envelope, 8)
	for i := range tasks {
		tasks[i] = newTask(reviewer, "code.review", `{}`)
		r.submit(client, tasks[i])
	}
	for range tasks {
		within(t, "a task", g.entered)
	}
	eventually(t, "each task has a slot", func() bool { return held() == 8 }) // a slot that is renewed late is taken again
	g.open()
	for _, task := range tasks {
		if _, err := r.result(client, task); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "one slot is left", func() bool { return held() == 1 })
	again := newTask(reviewer, "code.review", `{}`)
	r.submit(client, again)
	if _, err := r.result(client, again); err != nil {
		t.Error(err)
	}
}

// A task in a slot outlasts a server that is away for some seconds. Fault 12 of the
// operator's tour: it was ended after three seconds, in the name of another worker
// that had its slot.
func TestASlotOutlastsARestartOfTheServer(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	g := newGate(t)
	stopped := make(chan error, 1)
	r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { d.Slots = slot.NewStore(r.js(natstest.Conn(t, r.srv)), r.m, 0) }), mesh.Agent{MeshConcurrency: 1,
		Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			out, err := g.Handle(ctx, task)
			stopped <- context.Cause(ctx)
			return out, err
		})})
	if err := r.nc.PublishRequest(reviewer, r.nc.NewInbox(), encode(t, newTask(reviewer, "code.review", `{}`))); err != nil {
		t.Fatal(err)
	}
	within(t, "the task", g.entered)
	r.srv.Close()
	<-time.After(4 * time.Second) // what a restart takes
	r.srv = natstest.Run(t, r.srv.Config())
	slots := slot.NewStore(r.js(natstest.Conn(t, r.srv)), r.m, 0)
	since := time.Time{}
	eventually(t, "the slot is renewed twice after that", func() bool {
		held, err := slots.List(ctxFor(t), reviewer)
		if err != nil || len(held) != 1 {
			return false
		}
		if since.IsZero() {
			since = held[0].Since
		}
		return held[0].Since.After(since.Add(time.Second))
	})
	g.open()
	if why := within(t, "the handler", stopped); why != nil {
		t.Errorf("the task was stopped: %v", why)
	}
}
