package soak

import (
	"context"
	"errors"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// The promises that a worker can be made to break.
const (
	// BreakFence writes records whatever their revision: the lease is all that
	// keeps two owners apart.
	BreakFence = "fence"
	// BreakAckFirst takes a task off the queue when it is claimed, and nobody
	// looks for it: whoever dies after that takes it along.
	BreakAckFirst = "ack-first"
	// BreakForget begins a chain anew at each claim, whatever its record says.
	BreakForget = "forget"
	// BreakLetGo has the second system run what the first has not let go of in its
	// record.
	BreakLetGo = "let-go"
)

// Breaks are all of them, for [Options].Break.
var Breaks = []string{BreakFence, BreakAckFirst, BreakForget, BreakLetGo}

// breakPromise makes a worker do wrong.
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

// fenceless is a store whose writers do not exclude one another.
type fenceless struct{ state.Store }

// Put writes over whatever is there.
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

// ackFirst is a store that takes the task off the queue with the first claim.
type ackFirst struct {
	state.Store
	js natsjs.JetStream
}

// Put writes, and takes the task of a run that was claimed off the queue.
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

// clinging is a store that does not keep that a run was let go of for another system.
type clinging struct{ state.Store }

// Put writes, or only says so.
func (c clinging) Put(ctx context.Context, id state.ID, prev uint64, data []byte) (uint64, error) {
	if cp, err := (state.Codec{}).Decode(data); err == nil && cp.Mesh.Migration != nil && cp.Mesh.Migration.Phase == state.PhaseCommitted {
		return prev, nil
	}
	return c.Store.Put(ctx, id, prev, data)
}
