package mesh

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/share"
	"github.com/aeemesh/aeemesh/mesh/internal/telemetry"
)

// holdings are the messages of the durable lane that this worker has under a lease, and the
// runs that it has drawn or owns. The other parts of a lane embed them; holdings know none
// of these.
type holdings struct {
	host    *host
	cfg     *Durable
	records *records
	queue   *jetstream.Lane
	tel     *telemetry.Lane
	clock   *serverClock
	share   *share.Share
	onFirst func() // called for each message that is drawn: starts what an agent needs from its first task on

	// ctx ends when nothing more may be written: after the drain.
	ctx    context.Context
	work   sched.Group // goroutines beside the agent's places
	upkeep sched.Group // lease renewal and the other loops that an agent with tasks needs

	unrenewed atomic.Bool // the leases were not renewed at their time, for lack of a connection

	mu       sync.Mutex
	renewing bool // renew runs
	holds    map[*hold]struct{}
	runs     map[string]*Run // by run id: claimed and not ended
	enlisted map[string]*Run // by run id: drawn and not claimed
}

// hold is a message that this worker has under a lease.
type hold struct {
	*jetstream.Delivery
	drawnAt time.Time
	tally   *tally // guarded by holdings.mu; nil: the message is none of the queue's
	idle    bool   // logged as one without work; used by renew alone
}

// hold keeps a message leased from now on, while there is work on it: the caller's, which
// is counted, is the first.
func (hs *holdings) hold(d *jetstream.Delivery) *hold {
	hold := &hold{Delivery: d, drawnAt: time.Now(), tally: &tally{}}
	hold.tally.add(1)
	hs.mu.Lock()
	hs.holds[hold] = struct{}{}
	hs.renewSoon()
	hs.mu.Unlock()
	hs.onFirst()
	return hold
}

// dropHold stops renewing a message's lease, without an answer to the server.
func (hs *holdings) dropHold(h *hold) {
	hs.mu.Lock()
	delete(hs.holds, h)
	hs.mu.Unlock()
	hs.queue.Wake()
}

// ack acks a message, which takes it off the queue. Before it a terminal or parked
// record must be stored, unless there is nothing to do for the message.
func (hs *holdings) ack(h *hold) {
	if err := h.Ack(); err != nil {
		hs.host.log.Debug("acknowledgement not sent", "seq", h.Seq, "err", err)
	}
	hs.dropHold(h)
}

// nak naks a message: the server redelivers it after delay.
func (hs *holdings) nak(h *hold, delay time.Duration) {
	if err := h.Nak(delay); err != nil {
		hs.host.log.Debug("task not requeued", "seq", h.Seq, "err", err)
	}
	hs.dropHold(h)
}

// claimed returns the runs that this worker owns.
func (hs *holdings) claimed() []*Run {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return slices.Collect(maps.Values(hs.runs))
}

// enlist records a run that was drawn. If this worker already has a run with that id,
// it returns that one: a worker that was suspended gets a message several times at
// once.
func (hs *holdings) enlist(r *Run) *Run {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if mine := hs.runs[r.id.Run]; mine != nil {
		return mine
	}
	if mine := hs.enlisted[r.id.Run]; mine != nil {
		return mine
	}
	hs.enlisted[r.id.Run] = r
	return nil
}

// has returns the run with an id that this worker owns or has drawn, nil if there is
// none.
func (hs *holdings) has(id string) *Run {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if mine := hs.runs[id]; mine != nil {
		return mine
	}
	return hs.enlisted[id]
}

func (hs *holdings) run(id string) *Run {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.runs[id]
}

// unlist removes a run from this worker's lists.
func (hs *holdings) unlist(r *Run) {
	hs.mu.Lock()
	if hs.runs[r.id.Run] == r {
		delete(hs.runs, r.id.Run)
	}
	if hs.enlisted[r.id.Run] == r {
		delete(hs.enlisted, r.id.Run)
	}
	hs.mu.Unlock()
	hs.share.Stored(&r.reserved)
	hs.host.running.Remove(&r.task.entry)
	if !r.wrote {
		r.task.span.End() // the next owner has its own span
	}
}

// lost handles a run that another worker owns: it is unlisted, and its message is no
// longer renewed.
func (hs *holdings) lost(r *Run) {
	hs.tel.Lost(hs.host.Entity)
	hs.host.log.Warn("run lost to another worker", "run", r.id.Run, "id", r.task.Envelope.ID)
	r.task.claim()
	hs.unlist(r)
	hs.dropHold(r.hold)
}

// busy reports whether this worker has messages.
func (hs *holdings) busy() bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return len(hs.holds) > 0
}

// nakFailed naks the message of a run whose record or reply could not be read or written: the next
// delivery tries again.
func (hs *holdings) nakFailed(r *Run, err error) {
	hs.unlist(r)
	if unreadable(err) == nil {
		hs.records.failed(err)
		hs.nak(r.hold, time.Second)
		return
	}
	e := r.task.Envelope
	hs.host.log.Error("run not written", "run", r.id.Run, "id", e.ID, "corr", e.Corr, "err", err)
	hs.tel.Unreadable(hs.host.Entity)
	hs.records.unreadableRun.Store(&failure{time.Now(), fmt.Errorf("run %s: %w", r.id.Run, err)})
	hs.nak(r.hold, unreadablePause)
}

// releaseClaimed releases a run, if its claim is written and it has not ended here, and naks
// its message.
func (hs *holdings) releaseClaimed(r *Run) {
	r.mu.Lock() // wait for a step that is being written
	defer r.mu.Unlock()
	if r.end == nil && r.rev > 0 {
		ctx, cancel := context.WithTimeout(hs.ctx, closePatience/2)
		defer cancel()
		if err := r.release(ctx); err != nil && !errors.Is(err, ErrLost) {
			hs.host.log.Warn("run not released", "run", r.id.Run, "err", err)
		}
	}
	if r.end == nil {
		r.stop(ErrLost)
		hs.unlist(r)
		hs.nak(r.hold, 0)
	}
}

// own records that this worker owns a run.
func (hs *holdings) own(r *Run) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.runs[r.id.Run] = r
	delete(hs.enlisted, r.id.Run)
	hs.renewSoon()
}
