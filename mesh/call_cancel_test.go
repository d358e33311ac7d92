package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// fanning calls several others at once and answers when all have.
func fanning(calls ...mesh.Call) mesh.Handler {
	return mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		errs := make([]error, len(calls))
		var all sync.WaitGroup
		for i, c := range calls {
			all.Go(func() { _, errs[i] = task.Call(ctx, c) })
		}
		all.Wait()
		for _, err := range errs {
			if isErr(err, mesh.ErrInterrupted) {
				return nil, task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, nil)
			}
			if err != nil {
				return nil, err
			}
		}
		return json.RawMessage(`{}`), nil
	})
}

// leaf is a handler that runs until it is stopped.
type leaf struct{ began, stopped chan string }

func newLeaf() *leaf { return &leaf{make(chan string, 16), make(chan string, 16)} }

func (l *leaf) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	l.began <- task.Envelope.ID
	<-ctx.Done()
	l.stopped <- task.Envelope.ID
	return nil, ctx.Err()
}

// hears waits until entities have their durable lane: a worker is there before that.
func (r *durableRig) hears(entities ...string) {
	r.t.Helper()
	queue := jetstream.NewQueue(r.js(r.nc), r.m)
	for _, entity := range entities {
		eventually(r.t, entity+" has a durable lane", func() bool {
			ok, err := queue.Served(ctxFor(r.t), entity)
			return ok && err == nil
		})
	}
}

// openRuns are the runs of all entities that have not ended.
func (r *durableRig) openRuns(entities ...string) (open []string) {
	r.t.Helper()
	states := jetstream.NewStates(r.js(r.nc), r.m)
	for _, entity := range entities {
		for rec, err := range states.List(ctxFor(r.t), entity) {
			if err != nil {
				r.t.Fatal(err)
			}
			if h, err := rec.Header(); err != nil || !state.Terminal(h.Status) {
				open = append(open, fmt.Sprint(entity, " ", h.Status, " ", err))
			}
		}
	}
	return open
}

// A tree of three over both lanes is cancelled at its root while the worker in the
// middle is gone: nothing is left running, and what waits is not begun.
func TestCancelReachesTheLeavesBehindAKilledWorker(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := newDurableRig(t).shortLeases()
	durable, live := newLeaf(), newLeaf()
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.durable", Handler: durable})
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: "agent.live", Handler: live})
	middle := mesh.Agent{Entity: "agent.middle", Handler: fanning(mesh.Call{To: "agent.durable", Key: "1"}, mesh.Call{To: "agent.live", Key: "2"})}
	doomed := r.lane(mesh.Config{Drain: time.Millisecond})
	r.serve(doomed, middle)
	r.hears("agent.durable", "agent.middle")
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: calling(mesh.Call{To: "agent.middle", Key: "1"}, nil)})
	client := r.client()
	task := newTask(lead, "lead.work", `{}`)
	r.submit(client, task)
	began := []string{within(t, "the durable leaf", durable.began), within(t, "the live leaf", live.began)}

	doomed.Conn().Close()
	if _, err := client.Command(ctxFor(t), lead, intents.CancelTask{ID: task.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeCancelled {
		t.Fatalf("the root ended with %v", err)
	}
	r.serve(r.lane(mesh.Config{}), middle) // a worker must pass the command on
	stopped := []string{within(t, "the durable leaf to stop", durable.stopped), within(t, "the live leaf to stop", live.stopped)}
	equal(t, "stopped", stopped, began)
	r.drainedQueue()
	eventually(t, "no run is open", func() bool { return len(r.openRuns(lead, "agent.middle", "agent.durable", "agent.live")) == 0 })
	select {
	case id := <-durable.began:
		t.Errorf("task %s was begun once more", id)
	case id := <-live.began:
		// The worker that came may have begun the run anew before the order reached it.
		within(t, "the live leaf to stop again", live.stopped)
		_ = id
	default:
	}
}

// A paused run, which no worker runs, is cancelled with the calls that
// its checkpoint names.
func TestCancelReachesTheCallsOfAPausedRun(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	end := newLeaf()
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: end})
	r.hears(helper)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: fanning(mesh.Call{To: helper, Key: "1"})})
	client := r.client()
	task := newTask(lead, "lead.work", `{}`)
	r.submit(client, task)
	hop := within(t, "the hop", end.began)
	if _, err := client.Command(ctxFor(t), lead, intents.PauseTask{Target: intents.Target{ID: task.ID}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the run is paused", func() bool { return r.record(task).Doc.Status == aaif.RunPaused })
	select {
	case <-end.stopped:
		t.Fatal("the hop was stopped with the pause")
	default:
	}
	calls := r.record(task).Mesh.Calls
	if len(calls) != 1 || calls[0].ID != hop || calls[0].Key != "1" || calls[0].To != helper || calls[0].Live || calls[0].At.IsZero() {
		t.Errorf("the checkpoint tells of %+v, want %s", calls, hop)
	}
	if _, err := client.Command(ctxFor(t), lead, intents.CancelTask{ID: task.ID}); err != nil {
		t.Fatal(err)
	}
	equal(t, "stopped", within(t, "the hop to stop", end.stopped), hop)
	r.drainedQueue()
	eventually(t, "no run is open", func() bool { return len(r.openRuns(lead, helper)) == 0 })
}

// A paused run that is resumed finds the call that it had sent.
func TestCallIsInterruptedByAPauseAndFoundAgain(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: g})
	r.hears(helper)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: fanning(mesh.Call{To: helper, Key: "1"})})
	client := r.client()
	task := newTask(lead, "lead.work", `{}`)
	r.submit(client, task)
	within(t, "the hop", g.entered)
	if _, err := client.Command(ctxFor(t), lead, intents.PauseTask{Target: intents.Target{ID: task.ID}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the run is paused", func() bool { return r.record(task).Doc.Status == aaif.RunPaused })
	g.open() // its answer comes while no run waits for it
	eventually(t, "the hop is answered", func() bool { return len(r.openRuns(helper)) == 0 })
	if _, err := client.Command(ctxFor(t), lead, intents.ResumeTask{Target: intents.Target{ID: task.ID}}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	if n := len(g.entered); n != 0 {
		t.Errorf("the hop was done %d times more", n)
	}
	equal(t, "calls left", r.record(task).Mesh.Calls, []state.Call(nil))
}

// A worker that stops does not wait for its calls: their run is released, and the next worker
// finds the answer.
func TestCallIsInterruptedWhenItsWorkerDrains(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: g})
	r.hears(helper)
	ended := make(chan error, 1)
	w := r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		_, err := task.Call(ctx, mesh.Call{To: helper, Key: "1"})
		ended <- err
		return nil, err
	})})
	task := newTask(lead, "lead.work", `{}`)
	r.submit(r.client(), task)
	within(t, "the hop", g.entered)
	w.stop()
	if err := within(t, "the end of the call", ended); !isErr(err, mesh.ErrInterrupted) {
		t.Errorf("got %v, want ErrInterrupted", err)
	}
	g.open()
}
