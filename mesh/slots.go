package mesh

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/slots"
)

// slotPatience is how long a drawn durable task waits for a slot before it is nakked,
// so that another worker can take it.
const slotPatience = 2 * time.Second

// slotsBack is how long a worker that holds slots may take to reconnect, before they are
// freed: its live tasks outlast a restart of the server.
const slotsBack = 3 * time.Second

// newSlots returns the slots (internal/slots) of an agent with a limit across the mesh.
func newSlots(l *lane) taskSlots {
	h := l.host
	return slots.New(slots.Config[*Task]{
		Entity: h.Entity, Instance: h.id, Most: h.MeshConcurrency, Store: l.cfg.Slots, Log: h.log,
		Places:   func() int { return h.Concurrency - int(h.active.Load()) },
		Drawn:    func() int { return int(l.deliveries.waiting.Load()) },
		Draining: l.draining.Load,
		Announce: func() error { return h.node.sender.Publish(h.ctl, nil, nats.Header{headerSlots: {h.id}}) },
		Acquired: l.queue.Wake,
		Lost:     l.slotLost,
		Now:      l.clock.now,
		Silent:   func(ctx context.Context, holder string) { l.guardian.LookAfter(ctx, holder, slotsBack) },
	})
}

func (l *lane) slotsWanted(instance string) {
	if l.slots != nil {
		l.slots.Wanted(instance)
	}
}

func (l *lane) enterSlot(t *Task, patience time.Duration) error {
	if l.slots == nil {
		return nil
	}
	err := l.slots.Enter(taskContext{t}, t, patience)
	switch {
	case errors.Is(err, slots.ErrFull):
		return busy(l.host.Entity)
	case errors.Is(err, slots.ErrClosed):
		return drainingError(l.host.Entity)
	case errors.Is(err, slots.ErrAway):
		return noSlotError(t)
	}
	return err
}

func (l *lane) noSlots() bool { return l.slots != nil && l.slots.Away() }

// leaveSlot frees the task's slot, unless [Task.HoldSlot] keeps it. It is called once when the
// handler has returned, and once for each HoldSlot.
func (l *lane) leaveSlot(t *Task) {
	if l.slots != nil && t.slotHolds.Add(-1) < 0 {
		l.slots.Leave(t)
	}
}

// HoldSlot keeps the task's slot of [Agent.MeshConcurrency] until release is called, also after the
// handler has returned: for a handler whose work goes on elsewhere after the task has ended. It may
// be called while the handler runs. A worker that stops frees all its slots.
func (t *Task) HoldSlot() (release func()) {
	if t.host == nil || t.host.joined() == nil {
		return func() {}
	}
	t.slotHolds.Add(1)
	return sync.OnceFunc(func() { t.host.durable.leaveSlot(t) })
}

// slotLost ends a task whose slot was lost: a live task fails, a durable one is released.
func (l *lane) slotLost(t *Task, why *envelope.Error) {
	if t.run != nil {
		t.run.releaseRunning(why)
		return
	}
	l.host.end(t, why)
}
