package mesh

import (
	"sync/atomic"
	"time"
)

// The lease on a message is renewed only while there is work on it: it is checked, its
// task waits for a place, its handler runs, its outcome is stored, or its run is
// transferred. Each piece of work counts itself. So a message that this worker has lost
// sight of is delivered again when its lease ends, however long the worker lives; if that
// is to this worker, it gives the run up (redelivered).

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
func (l *lane) workOn(t *tally, f func()) {
	t.add(1)
	l.work.Go(func() {
		defer t.add(-1)
		f()
	})
}

// await puts a task into the agent's queue, where it waits for a place; that is work on
// its message until the place is free again (host.run). It returns false where the queue
// is full or closed.
func (l *lane) await(t *Task) bool {
	tally := t.run.tally
	tally.add(1)
	if l.host.put(t) {
		return true
	}
	tally.add(-1)
	return false
}

// renewSoon starts renew unless it runs. l.mu is held.
func (l *lane) renewSoon() {
	if !l.renewing {
		l.renewing = true
		l.upkeep.Go(l.renew)
	}
}

// renewed reports whether renew has nothing to do any more, and may end.
func (l *lane) renewed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewing = len(l.holds)+len(l.runs) > 0
	return !l.renewing
}

// renew renews the leases of all held messages from one timer, while there are messages or
// runs. It also verifies the
// ownership of runs after this process was suspended or disconnected for so long that
// other workers may have claimed them.
func (l *lane) renew() {
	lease := l.queue.Lease()
	tick := time.NewTicker(lease / 3)
	defer tick.Stop()
	soon := time.NewTicker(min(lease/3, claimSoon))
	defer soon.Stop()
	reconnects := l.host.node.conn.Stats().Reconnects
	last := time.Now()
	for {
		select {
		case <-soon.C:
			l.writeClaims()
			if l.renewed() {
				return
			}
			continue
		case <-tick.C:
		case <-l.ctx.Done():
			return
		}
		now := time.Now()
		l.mu.Lock()
		for h := range l.holds {
			if h.tally.none() {
				if !h.idle {
					h.idle = true
					l.host.log.Error("the lease on a message without work is not renewed", "seq", h.Seq)
				}
				continue
			}
			_ = h.InProgress() // a lost renewal is made up for by the next one
		}
		l.mu.Unlock()
		again := l.host.node.conn.Stats().Reconnects
		stood := max(now.Sub(last), now.Round(0).Sub(last.Round(0))) > lease
		for _, r := range l.claimed() {
			if stood || again != reconnects || now.Sub(time.Unix(0, r.seen.Load())) > 10*lease {
				l.work.Go(func() { r.verify(l.ctx) })
			}
		}
		last, reconnects = now, again
		if next := l.queue.Lease(); next != lease {
			lease = next
			tick.Reset(lease / 3)
		}
	}
}
