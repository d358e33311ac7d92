package mesh

import "time"

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
