package mesh

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/guardian"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// When a guardian (internal/guardian) finds out that a worker has died, it removes the dead worker
// as owner of its runs, by a compare-and-swap of each record with the next epoch, and requeues the
// runs. So they continue after about half a second; without that they would wait until the leases
// on their messages end.
//
// It changes only the owner in a run's record. If the worker was not dead, it has
// lost its runs, as after the end of its lease: its next write fails.

// newGuardian returns the lane's guardian.
func newGuardian(l *lane) *guardian.Guardian {
	return guardian.New(guardian.Config{
		Entity: l.host.Entity, Instance: l.host.id, Prober: l.host.node.prober,
		HasRuns: func() bool { return len(l.claimed()) > 0 }, Ask: l.askToGuard, Dead: l.takeOver,
	})
}

// askToGuard sends a request for a guardian to the agent's workers, and returns the worker
// that answers; "" if none does.
func (l *lane) askToGuard(ctx context.Context, request guardian.Request) string {
	h := l.host
	e := envelope.New(envelope.TypeTask, h.Entity, h.Entity, intents.TaskGuard, wire.MustJSON(request))
	e.Priority = envelope.PriorityUrgent
	reply, err := l.transfers.Ask(ctx, e, guardian.AnswerWait)
	if err != nil || reply.Type != envelope.TypeResult {
		return "" // no other worker: if this one dies, its runs resume when the lease of their messages ends
	}
	var answer guardAnswer
	_ = wire.ReadJSON(reply.Payload, &answer)
	return answer.Instance
}

// guardAnswer is the answer of a worker that is a guardian from now on, or can be one.
type guardAnswer struct {
	Instance string `json:"instance"`
}

func (l *lane) betweenWorkers(intent string) func(*Task) {
	switch intent {
	case intents.TaskOffer:
		return l.transfers.offered
	case intents.TaskGuard:
		l.guardian.Start(l.ctx)
		return l.askedToGuard
	}
	return nil
}

// askedToGuard answers a worker that looks for a guardian.
func (l *lane) askedToGuard(t *Task) {
	h := l.host
	var request guardian.Request
	if wire.ReadJSON(t.Envelope.Payload, &request) != nil || t.Envelope.From != h.Entity || l.draining.Load() {
		return
	}
	if l.guardian.Asked(request) {
		h.succeed(t, wire.MustJSON(guardAnswer{Instance: h.id}))
	}
}

// takeOversAtOnce bounds the lists of runs that a lane reads at once for dead workers.
const takeOversAtOnce = 2

// deaths are the dead workers whose runs are to be taken over. Those that die while takeOversAtOnce
// lists are read share the next one: a list may be long, and a guardian may be told of workers that
// never were.
type deaths struct {
	mu      sync.Mutex
	waiting []string // instances
	reading int      // lists
}

// takeOver takes the runs from a dead worker, or leaves that to another call that is under way.
func (l *lane) takeOver(ctx context.Context, instance string) {
	d := &l.deaths
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.waiting, instance) {
		d.waiting = append(d.waiting, instance)
	}
	if d.reading == takeOversAtOnce {
		return
	}
	d.reading++
	for len(d.waiting) > 0 {
		dead := d.waiting
		d.waiting = nil
		d.mu.Unlock()
		l.takeOverAll(ctx, dead)
		d.mu.Lock()
	}
	d.reading--
}

// takeOverAll takes the runs from dead workers and requeues them. It frees one of a worker's slots
// for each run, and the slots that the worker has not renewed in time. If the worker is alive
// after all, a run may be executed twice until that worker notices; only during that time may the
// agent exceed its limit. The live tasks of such a worker keep their slots while it renews them.
func (l *lane) takeOverAll(ctx context.Context, dead []string) {
	runs := make(map[string]int, len(dead)) // by instance
	for _, instance := range dead {
		runs[instance] = 0
	}
	for rec, err := range l.records.open(ctx) {
		if err != nil {
			l.host.log.Warn("runs of dead workers not listed: they resume when their leases end", "workers", len(dead), "err", err)
			break
		}
		h, err := rec.Header()
		if err != nil || !run.Carried(h.Status) {
			continue
		}
		if _, ok := runs[h.Owner]; !ok {
			continue
		}
		switch err := l.requeueOrphan(ctx, rec, h.Owner); {
		case err == nil:
			runs[h.Owner]++
			l.tel.Recovered(l.host.Entity)
		case !errors.Is(err, state.ErrChanged): // it has ended, or another worker was faster
			l.host.log.Warn("run of a dead worker not queued: it resumes when its lease ends", "run", rec.ID.Run, "worker", h.Owner, "err", err)
		}
	}
	for _, instance := range dead {
		if n := runs[instance]; n > 0 {
			l.host.log.Warn("worker died: its runs go on", "worker", instance, "runs", n)
		}
		l.freeSlots(ctx, instance, runs[instance])
	}
}

// freeSlots frees as many slots of a dead worker as it had runs, and those that it has not renewed.
func (l *lane) freeSlots(ctx context.Context, instance string, runs int) {
	if l.slots == nil {
		return
	}
	slots, err := l.cfg.Slots.Free(ctx, l.host.Entity, instance, runs, l.clock.now().Add(-l.cfg.Slots.Late()))
	if err != nil {
		l.host.log.Warn("slots of a dead worker not freed: their lease ends them", "worker", instance, "err", err)
	}
	if slots > 0 {
		l.host.log.Info("slots of a dead worker freed", "worker", instance, "slots", slots)
	}
}

// requeueOrphan removes a dead owner from a run's record and requeues the run. It fails with
// state.ErrChanged if that worker no longer owns the run.
func (l *lane) requeueOrphan(ctx context.Context, rec state.Record, owner string) error {
	c, err := l.records.read(rec)
	if err != nil {
		return err
	}
	if !run.Abandon(c, owner) {
		return state.ErrChanged
	}
	return l.goOn(ctx, rec, c)
}
