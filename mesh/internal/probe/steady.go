package probe

import (
	"sync"
	"time"
)

// steadyFor is how long this process must be connected before it may declare a worker
// dead: after an outage not all workers reconnect at the same time.
const steadyFor = 3 * time.Second

// steadiness records since when this process has been connected without a reconnect.
type steadiness struct {
	mu         sync.Mutex
	reconnects uint64
	since      time.Time // when a reconnect was noticed
}

// Steady reports whether this process has not reconnected in the last three seconds. It
// learns of a reconnect when it is called, so a caller that begins to watch calls it once.
func (p *Prober) Steady() bool {
	s := &p.steadiness
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := p.conn.Stats().Reconnects; now != s.reconnects {
		s.reconnects, s.since = now, time.Now()
	}
	return p.conn.IsConnected() && time.Since(s.since) > steadyFor
}

// MaxBack bounds the reconnect time that a worker may state.
const MaxBack = 10 * time.Second

// BackAfter returns how long after the loss of its connection this process reconnects.
func (p *Prober) BackAfter() time.Duration {
	o := &p.conn.Opts
	if o.CustomReconnectDelayCB != nil {
		return o.CustomReconnectDelayCB(1)
	}
	return o.ReconnectWait + max(o.ReconnectJitter, o.ReconnectJitterTLS)
}
