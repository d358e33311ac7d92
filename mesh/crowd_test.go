package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

func crowdMember(i int) string { return fmt.Sprintf("agent.crowd_%d", i) }

// crowd serves many agents on one node, until stop.
func (r *durableRig) crowd(node *mesh.Node, size int, handler mesh.Handler) (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	ready := make(chan struct{}, size)
	var all sync.WaitGroup
	for i := range size {
		agent := mesh.Agent{Entity: crowdMember(i), Handler: handler, Ready: func() { ready <- struct{}{} }}
		all.Go(func() {
			if err := node.Serve(ctx, agent); err != nil {
				r.t.Error(err)
			}
		})
	}
	for range size {
		within(r.t, "an agent", ready)
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// Agents that have no tasks have no consumers, and all of them answer, before and after the
// server restarts.
func TestACrowdOfIdleAgentsAnswers(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	const size = 200
	r := newDurableRig(t)
	defer r.crowd(r.lane(mesh.Config{}), size, echo)()
	work, err := r.js(r.nc).Stream(ctxFor(t), jetstream.StreamWork)
	if err != nil {
		t.Fatal(err)
	}
	if n := work.CachedInfo().State.Consumers; n != 0 {
		t.Errorf("%d consumers for idle agents, want none", n)
	}
	client := r.client()
	ask := func(step int) {
		t.Helper()
		var tasks []*envelope.Envelope
		for i := 0; i < size; i += step {
			task := newTask(crowdMember(i), "code.review", fmt.Sprintf(`{"n":%d}`, i))
			eventually(t, "the task is stored", func() bool {
				_, err := client.Submit(ctxFor(t), task, mesh.SubmitOptions{})
				return err == nil
			})
			tasks = append(tasks, task)
		}
		for _, task := range tasks {
			if reply, err := r.result(client, task); err != nil || string(reply.Payload) != string(task.Payload) {
				t.Fatalf("%s: %v, %v", task.To, reply, err)
			}
		}
	}
	ask(1)
	natstest.Restart(t, r.srv)
	ask(10)
}

// An idle agent has three goroutines, and little memory, its part of the server included.
// `aeemesh bench agents` measures 10,000 of them. Finding D3 of the reliability review: it
// had some 35 goroutines, and half a megabyte.
func TestAnIdleAgentCostsLittle(t *testing.T) {
	// Not parallel: it looks at all goroutines.
	natstest.Long(t)
	const size = 300
	r := newDurableRig(t)
	node := r.lane(mesh.Config{})
	defer begin(t, node, mesh.Agent{Entity: crowdMember(size), Handler: echo}).end() // the node's own
	used := func() (goroutines, bytes int) {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), int(m.HeapAlloc + m.StackInuse)
	}
	goroutines, bytes := used()
	defer r.crowd(node, size, echo)()
	var each, kilobytes float64
	defer func() { t.Logf("%.1f goroutines and %.0f KB for each", each, kilobytes) }()
	eventually(t, "the agents cost no more than three goroutines and 60 KB each", func() bool {
		n, b := used()
		each, kilobytes = float64(n-goroutines)/size, float64(b-bytes)/size/1024
		return each <= 3.1 && kilobytes < 60
	})
}

// A run that waits, and whose worker is gone, is woken by a worker that hosts many agents,
// and so reads the runs of all of them at once.
func TestACrowdWakesTheRunsOfADeadWorker(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	parks := mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if !task.Run().Restored() {
			return nil, task.Run().ParkUntil(ctx, mesh.Wake{At: time.Now().Add(2 * time.Second)}, nil)
		}
		return json.RawMessage(`{"woken":true}`), nil
	})
	nc := natstest.Conn(t, r.srv)
	begin(t, r.laneOn(nc, mesh.Config{Drain: time.Millisecond}), mesh.Agent{Entity: crowdMember(3), Handler: parks})
	client := r.client()
	task := newTask(crowdMember(3), "code.review", `{}`)
	r.submit(client, task)
	states := jetstream.NewStates(r.js(r.nc), r.m)
	eventually(t, "the run waits", func() bool {
		rec, err := states.Get(ctxFor(t), runOf(task))
		if err != nil {
			return false
		}
		h, err := state.ReadHeader(rec.Data)
		return err == nil && h.Status == aaif.RunAwaitingApproval
	})
	nc.Close()
	defer r.crowd(r.lane(mesh.Config{}), 20, parks)()
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"woken":true}` {
		t.Errorf("%v, %v", reply, err)
	}
}
