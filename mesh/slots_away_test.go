package mesh_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// While JetStream is away, no task of an agent with a limit across the mesh gets a slot. The sender
// learns that nothing was begun, at the task's deadline at the latest.
func TestATaskWithoutASlotIsNotBegunWhileJetStreamIsAway(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	for name, c := range map[string]struct {
		lease, timeout time.Duration
		silent         bool
	}{
		"at the deadline":            {6 * time.Second, 4 * time.Second, false},
		"no server answers":          {6 * time.Second, 4 * time.Second, true},
		"long before the deadline":   {2 * time.Second, time.Minute, false},
		"without an answer, as long": {2 * time.Second, time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			outage, nc := natstest.NewOutage(t, r.srv), natstest.Conn(t, r.srv)
			if outage.Silence(c.silent); !c.silent {
				outage.RefuseFirst(1 << 30)
			}
			r.serve(r.laneOn(nc, mesh.Config{}, func(d *mesh.Durable) {
				d.Slots = slot.NewStore(outage.JetStream(t, nc), r.m, c.lease)
			}), mesh.Agent{Concurrency: 1, MeshConcurrency: 1, Timeout: c.timeout, Handler: echo})
			client := r.client()
			_, err := client.Send(ctxFor(t), newTask(reviewer, "code.review", `{}`), mesh.SendOptions{})
			e := envelope.AsError(err)
			if e.Code != envelope.CodeUnavailable || !e.SaysNotBegun() || !e.Retryable || !strings.Contains(e.Message, "JetStream") || !strings.Contains(e.Message, "runtime.concurrency") {
				t.Errorf("%v, said to be not begun: %t", err, e.SaysNotBegun())
			}
			outage.Silence(false)
			outage.RefuseFirst(0)
			eventually(t, "a task is done when JetStream is back", func() bool {
				_, err := client.Send(ctxFor(t), newTask(reviewer, "code.review", `{}`), mesh.SendOptions{})
				return err == nil
			})
		})
	}
}

// Where all slots are taken, and JetStream works, a task waits for one until its deadline.
func TestATaskWaitsForATakenSlotUntilItsDeadline(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	held, err := slot.NewStore(r.js(r.nc), r.m, time.Hour).Try(ctxFor(t), reviewer, 1, "another")
	if err != nil || held == nil {
		t.Fatal(held, err)
	}
	r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { d.Slots = slot.NewStore(r.js(r.nc), r.m, 2*time.Second) }),
		mesh.Agent{Concurrency: 1, MeshConcurrency: 1, Timeout: 4 * time.Second, Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
			t.Error("begun without a slot")
			return nil, nil
		})})
	_, err = r.client().Send(ctxFor(t), newTask(reviewer, "code.review", `{}`), mesh.SendOptions{})
	if e := envelope.AsError(err); e.Code != envelope.CodeTimeout || e.SaysNotBegun() {
		t.Errorf("%v", err)
	}
}
