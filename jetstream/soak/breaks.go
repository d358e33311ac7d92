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
)

// Breaks are all of them, for [Options].Break.
var Breaks = []string{BreakFence, BreakAckFirst, BreakForget}

// breakPromise makes a worker do wrong.
func breakPromise(which string, d *mesh.Durable, js natsjs.JetStream) {
	switch which {
	case BreakFence:
		d.States = fenceless{d.States}
	case BreakAckFirst:
		d.States, d.Sweep = ackFirst{d.States, js}, -1
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
