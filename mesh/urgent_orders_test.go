package mesh_test

import (
	"context"
	"errors"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// sickly is a store that fails to read one run.
type sickly struct {
	state.Store
	run   string
	asked chan struct{}
}

func (s *sickly) Get(ctx context.Context, id state.ID) (state.Record, error) {
	if id.Run != s.run {
		return s.Store.Get(ctx, id)
	}
	select {
	case s.asked <- struct{}{}:
	default:
	}
	return state.Record{}, errors.New("a bad sector")
}

// The worker is busy, so it reads the orders in the queue without drawing them. One that cannot
// be applied for now is tried again, and does not hold up the next one.
func TestAnOrderThatFailsHoldsUpNoLaterOne(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	sick := newTask(reviewer, "code.review", `{}`)
	store := &sickly{run: state.RunID(reviewer, sick.ID), asked: make(chan struct{}, 1)}
	node := r.lane(mesh.Config{}, func(d *mesh.Durable) { store.Store, d.States = d.States, store })
	r.serve(node, mesh.Agent{Handler: willing{g}, Concurrency: 1})
	client, task := r.client(), newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", g.entered)
	for _, id := range []string{sick.ID, task.ID} {
		order := newTask(reviewer, intents.TaskCancel, `{"id":"`+id+`","durable":true}`)
		order.Priority = envelope.PriorityUrgent
		r.submit(client, order)
		if id == sick.ID {
			within(t, "the order that fails", store.asked)
		}
	}
	_, err := r.result(client, task)
	equal(t, "code", codeOf(err), envelope.CodeCancelled)
}
