package soak

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// Promises that a worker can be made to break, for [Options].Break.
const (
	// BreakFence writes records whatever their revision is, so that only the lease keeps
	// two owners apart.
	BreakFence = "fence"
	// BreakAckFirst removes a task from the queue when its run is first written, and turns
	// off the search for orphaned runs: a worker that crashes after that loses the task.
	BreakAckFirst = "ack-first"
	// BreakForget starts a chain from the beginning at each claim, ignoring its record.
	BreakForget = "forget"
	// BreakLetGo makes the second system run a task that the first system has not
	// released in its record.
	BreakLetGo = "let-go"
	// BreakReceipt stores the receipt of an effect only with the step after it.
	BreakReceipt = "late-receipt"
	// BreakParked begins a paused run when its message comes again.
	BreakParked = "parked"
	// BreakReply stores a reply without looking whether it is stored.
	BreakReply = "reply-again"
	// BreakEnd writes to records of runs that have ended.
	BreakEnd = "after-end"
	// BreakSweep never looks for runs whose message is lost.
	BreakSweep = "no-sweep"
	// BreakOlder claims a run by an older delivery of its message than that by which the owner
	// has claimed it.
	BreakOlder = "older-claim"
)

// Breaks lists them all.
var Breaks = []string{BreakFence, BreakAckFirst, BreakForget, BreakLetGo, BreakReceipt, BreakParked, BreakReply, BreakEnd, BreakSweep, BreakOlder}

// aims are the faults for workers that break a promise, where other faults seldom show it.
var aims = map[string]struct {
	kind Kind
	at   []Point
}{
	BreakEnd:   {WorkerStop, []Point{Point(mesh.PointBeforeCommit), Point(mesh.PointBeforeTerminal)}},
	BreakSweep: {WorkerKill, []Point{Point(mesh.PointRequeue)}},
	BreakOlder: {WorkerStop, []Point{Point(mesh.PointDelivered)}},
}

// breakPromise changes a worker's configuration so that it breaks a promise.
func breakPromise(which string, d *mesh.Durable, js natsjs.JetStream) {
	b := broken{RunStore: d.States}
	switch which {
	case BreakFence:
		b.over = func(state.Record) bool { return true }
	case BreakAckFirst:
		b.written, d.Sweep = func(ctx context.Context, h state.Header, prev uint64) {
			if prev > 0 && h.Step != state.StepClaim {
				return
			}
			if stream, err := js.Stream(ctx, jetstream.StreamWork); err == nil {
				stream.DeleteMsg(ctx, h.Work)
			}
		}, -1
	case BreakLetGo:
		b.drops = func(data []byte, _ state.Header) bool {
			cp, err := (state.Codec{}).Decode(data)
			return err == nil && cp.Mesh.Migration != nil && cp.Mesh.Migration.Phase == state.PhaseCommitted
		}
	case BreakReceipt:
		b.drops = func(_ []byte, h state.Header) bool {
			return h.Step == state.StepReceipt && h.Owner != "" && h.Status == aaif.RunRunning
		}
	case BreakParked:
		var reads atomic.Int64
		b.read = func(rec state.Record) state.Record {
			// Not every time, so that commands get through, too.
			if h, err := rec.Header(); err == nil && h.Status == aaif.RunPaused && reads.Add(1)%3 != 0 {
				return begun(rec)
			}
			return rec
		}
	case BreakReply:
		b.read = func(rec state.Record) state.Record {
			rec.Replied = false
			return rec
		}
	case BreakEnd:
		b.over = func(rec state.Record) bool {
			h, err := rec.Header()
			return err == nil && state.Terminal(h.Status)
		}
	case BreakOlder:
		b.read = unclaimed
	case BreakSweep:
		d.Sweep = -1
		return
	default:
		return
	}
	d.States = b
}

// broken is the store of a worker that breaks a promise. Each function may be nil.
type broken struct {
	jetstream.RunStore
	over    func(now state.Record) bool                            // a refused write is made all the same, over this record
	drops   func(data []byte, h state.Header) bool                 // a write is said to be stored, and is not
	written func(ctx context.Context, h state.Header, prev uint64) // is called after a write
	read    func(state.Record) state.Record                        // what the worker reads of a record
}

// PutNoted stores a record.
func (b broken) PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note jetstream.Note) (uint64, error) {
	h, err := state.ReadHeader(data)
	if err == nil && b.drops != nil && b.drops(data, h) {
		return prev, nil
	}
	rev, err := b.swap(ctx, id, prev, func(prev uint64) (uint64, error) { return b.RunStore.PutNoted(ctx, id, prev, data, note) })
	if err == nil && b.written != nil {
		b.written(ctx, h, prev)
	}
	return rev, err
}

// Reply stores a reply.
func (b broken) Reply(ctx context.Context, id state.ID, prev uint64, reply jetstream.Reply, note jetstream.Note, end *state.End) (uint64, error) {
	return b.swap(ctx, id, prev, func(prev uint64) (uint64, error) { return b.RunStore.Reply(ctx, id, prev, reply, note, end) })
}

func (b broken) swap(ctx context.Context, id state.ID, prev uint64, write func(prev uint64) (uint64, error)) (uint64, error) {
	for {
		rev, err := write(prev)
		if b.over == nil || !errors.Is(err, state.ErrChanged) {
			return rev, err
		}
		rec, getErr := b.RunStore.Get(ctx, id)
		if getErr != nil || !b.over(rec) {
			return rev, err
		}
		prev = rec.Revision
	}
}

// Get reads a record.
func (b broken) Get(ctx context.Context, id state.ID) (state.Record, error) {
	rec, err := b.RunStore.Get(ctx, id)
	if err == nil && b.read != nil {
		rec = b.read(rec)
	}
	return rec, err
}

// begun returns a record of a paused run as if any worker might go on with it.
func begun(rec state.Record) state.Record {
	return changed(rec, func(cp *state.Checkpoint) {
		cp.Doc.Status, cp.Mesh.Owner, cp.Mesh.Work = aaif.RunRunning, "", 0
	})
}

// unclaimed returns the record as if its owner had claimed the run long ago, by the first delivery.
func unclaimed(rec state.Record) state.Record {
	rec.Time = time.Unix(0, 0)
	return changed(rec, func(cp *state.Checkpoint) { cp.Mesh.Redelivered = 0 })
}

func changed(rec state.Record, change func(*state.Checkpoint)) state.Record {
	cp, err := (state.Codec{}).Read(rec)
	if err != nil {
		return rec
	}
	change(cp)
	if data, err := (state.Codec{}).Over(rec.Over).Encode(cp); err == nil {
		rec.Data = data
	}
	return rec
}
