package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

func TestADurableTaskIsDoneOnceAndAnsweredOnce(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	p := newPoints(t)
	var calls atomic.Int64
	r.serve(r.lane(mesh.Config{}, observing(p)), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		calls.Add(1)
		if task.Run() == nil || task.Run().Epoch() != 1 || task.Run().Restored() {
			t.Errorf("the handler has run %+v", task.Run())
		}
		return task.Envelope.Payload, nil
	})})
	client := r.client()
	task := newTask(reviewer, "code.review", `{"n":1}`)
	receipt := r.submit(client, task)
	equal(t, "run", receipt.Run, state.RunID(reviewer, task.ID))
	reply, err := r.result(client, task)
	if err != nil {
		t.Fatal(err)
	}
	want := task.Reply(envelope.TypeResult, json.RawMessage(`{"n":1}`))
	same(t, reply, want)
	r.drainedQueue()

	// Again, and again after the queue has forgotten.
	if again := r.submit(client, task); !again.Duplicate {
		t.Errorf("the second submission: %+v", again)
	}
	if _, err := r.js(r.nc).Publish(ctxFor(t), "aee.work.normal."+reviewer, encode(t, task)); err != nil {
		t.Fatal(err)
	}
	r.drainedQueue()
	replies := r.replies(task)
	equal(t, "replies", len(replies), 1)
	equal(t, "calls", calls.Load(), int64(1))

	c := r.record(task)
	equal(t, "status", c.Doc.Status, aaif.RunCompleted)
	equal(t, "step", c.Mesh.Step.Kind, state.StepTerminal)
	equal(t, "task", canonical(t, c.Mesh.Task), canonical(t, encode(t, task)))
	equal(t, "reply in the record", canonical(t, c.Mesh.Reply), canonical(t, encode(t, replies[0])))
	order := p.list()[:7]
	equal(t, "points", order, []mesh.Point{mesh.PointDelivered, mesh.PointClaimed, mesh.PointBeforeTerminal, mesh.PointAfterTerminal, mesh.PointAnnounced, mesh.PointReplied, mesh.PointAcked})
}

func TestTwoWorkersShareTheDurableLane(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	for range 2 {
		r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: g, Concurrency: 2})
	}
	client := r.client()
	var tasks []*envelope.Envelope
	for i := range 8 {
		tasks = append(tasks, newTask(reviewer, "code.review", fmt.Sprintf(`{"n":%d}`, i)))
		r.submit(client, tasks[i])
	}
	var begun []string
	for range 4 { // as many as there are places in all
		begun = append(begun, within(t, "a task", g.entered).Envelope.ID)
	}
	g.open()
	for _, task := range tasks {
		if reply, err := r.result(client, task); err != nil || string(reply.Payload) != string(task.Payload) {
			t.Errorf("result %v, %v", reply, err)
		}
	}
	r.drainedQueue()
	for len(begun) < len(tasks) {
		begun = append(begun, within(t, "a task", g.entered).Envelope.ID)
	}
	slices.Sort(begun)
	equal(t, "tasks begun, each once", len(slices.Compact(begun)), len(tasks))
}
