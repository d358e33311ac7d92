package soak

import (
	"context"
	"errors"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// Promises that a worker can be made to break, for [Options].Break.
const (
	// BreakFence writes records whatever their revision is, so that only the lease keeps
	// two owners apart.
	BreakFence = "fence"
	// BreakAckFirst removes a task from the queue when it is claimed, and turns off the
	// search for orphaned runs: a worker that crashes after the claim loses the task.
	BreakAckFirst = "ack-first"
	// BreakForget starts a chain from the beginning at each claim, ignoring its record.
	BreakForget = "forget"
	// BreakLetGo makes the second system run a task that the first system has not
	// released in its record.
	BreakLetGo = "let-go"
)

// Breaks lists them all.
var Breaks = []string{BreakFence, BreakAckFirst, BreakForget, BreakLetGo}

// breakPromise changes a worker's configuration so that it breaks a promise.
func breakPromise(which string, d *mesh.Durable, js natsjs.JetStream) {
	switch which {
	case BreakFence:
		d.States = fenceless{d.States}
	case BreakAckFirst:
		d.States, d.Sweep = ackFirst{d.States, js}, -1
	case BreakLetGo:
		d.States = clinging{d.States}
	}
}

// fenceless is a store without compare-and-swap.
type fenceless struct{ state.Store }

// Put overwrites the record whatever its revision is.
func (f fenceless) Put(ctx context.Context, id state.ID, prev uint64, data []byte) (uint64, error) {
	for {
		rev, err := f.Store.Put(ctx, id, prev, data)
		if !errors.Is(err, state.ErrChanged) {
			return rev, err
		}
		rec, err := f.Get(ctx, id)
		if err != nil {
			return 0, err
		}
		prev = rec.Revision
	}
}

// ackFirst is a store that removes the task from the queue at the first claim.
type ackFirst struct {
	state.Store
	js natsjs.JetStream
}

// Put stores the record and, after a claim, deletes the run's task from the queue.
func (a ackFirst) Put(ctx context.Context, id state.ID, prev uint64, data []byte) (uint64, error) {
	rev, err := a.Store.Put(ctx, id, prev, data)
	if err != nil {
		return rev, err
	}
	if h, err := state.ReadHeader(data); err == nil && h.Step == state.StepClaim {
		if stream, err := a.js.Stream(ctx, jetstream.StreamWork); err == nil {
			stream.DeleteMsg(ctx, h.Work)
		}
	}
	return rev, nil
}

// clinging is a store that does not record that a run was released for another system.
type clinging struct{ state.Store }

// Put stores the record, except one that commits a transfer: for that it only pretends
// to.
func (c clinging) Put(ctx context.Context, id state.ID, prev uint64, data []byte) (uint64, error) {
	if cp, err := (state.Codec{}).Decode(data); err == nil && cp.Mesh.Migration != nil && cp.Mesh.Migration.Phase == state.PhaseCommitted {
		return prev, nil
	}
	return c.Store.Put(ctx, id, prev, data)
}
