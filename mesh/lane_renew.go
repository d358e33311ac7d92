package mesh

import (
	"sync/atomic"
	"time"
)

// The lease on a message is renewed only while there is work on it: it is checked, its task waits
// for a place, its handler runs, its outcome is stored, or its run is transferred. Each piece of
// work counts itself. So a message that no piece of work counts any more is delivered again when
// its lease ends, however long the worker lives. If it is delivered to this worker, the worker
// loses the run (redelivered).

// A tally counts the pieces of work on a message. A nil tally counts nothing.
type tally struct{ n atomic.Int32 }

func (t *tally) add(n int32) {
	if t != nil {
		t.n.Add(n)
	}
}

// none reports whether there is no work on the message.
func (t *tally) none() bool { return t != nil && t.n.Load() <= 0 }

// workOn runs f on its own goroutine, as a piece of work on a message.
func (hs *holdings) workOn(t *tally, f func()) {
	t.add(1)
	hs.work.Go(func() {
		defer t.add(-1)
		f()
	})
}

// await puts a task into the agent's queue, where it waits for a place; that is work on
// its message until the place is free again (Run.perform). It returns false where the queue
// is full or closed.
func (ds *deliveries) await(r *Run) bool {
	r.tally.add(1)
	if ds.host.put(r.task) {
		return true
	}
	r.tally.add(-1)
	return false
}

// renewSoon starts renew unless it runs. hs.mu is held.
func (hs *holdings) renewSoon() {
	if !hs.renewing {
		hs.renewing = true
		hs.upkeep.Go(hs.renew)
	}
}

// renewed reports whether renew has nothing to do any more, and may end.
func (hs *holdings) renewed() bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.renewing = len(hs.holds)+len(hs.runs) > 0
	return !hs.renewing
}

// renew renews the leases of all held messages from one timer, while there are messages or
// runs. It also verifies the
// ownership of runs after this process was suspended or disconnected for so long that
// other workers may have claimed them.
func (hs *holdings) renew() {
	lease := hs.queue.Lease()
	tick := time.NewTicker(lease / 3)
	defer tick.Stop()
	soon := time.NewTicker(min(lease/3, claimSoon))
	defer soon.Stop()
	reconnects := hs.host.node.conn.Stats().Reconnects
	last := time.Now()
	for {
		select {
		case <-soon.C:
			hs.writeClaims()
			if hs.unrenewed.Load() {
				hs.renewLeases()
			}
			if hs.renewed() {
				return
			}
			continue
		case <-tick.C:
		case <-hs.ctx.Done():
			return
		}
		now := time.Now()
		hs.renewLeases()
		again := hs.host.node.conn.Stats().Reconnects
		stood := max(now.Sub(last), now.Round(0).Sub(last.Round(0))) > lease
		for _, r := range hs.claimed() {
			if stood || again != reconnects || hs.age()-time.Duration(r.seen.Load()) > 10*lease {
				hs.work.Go(func() { r.verify(hs.ctx) })
			}
		}
		last, reconnects = now, again
		if next := hs.queue.Lease(); next != lease {
			lease = next
			tick.Reset(lease / 3)
		}
	}
}

// age returns how long the agent has been served, whatever is done to this machine's clock.
func (hs *holdings) age() time.Duration { return time.Since(hs.host.started) }

// renewLeases renews the leases of the held messages with work. Without a connection it puts that
// off until there is one: renewals of a long outage would fill the buffer of the connection, in which
// replies to live tasks wait.
func (hs *holdings) renewLeases() {
	offline := hs.records.offline() != nil
	if hs.unrenewed.Store(offline); offline {
		return
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for h := range hs.holds {
		if h.tally.none() {
			if !h.idle {
				h.idle = true
				hs.host.log.Error("the lease on a message without work is not renewed", "seq", h.Seq)
			}
			continue
		}
		_ = h.InProgress() // a lost renewal is made up for by the next one
	}
}
