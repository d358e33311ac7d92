package mesh

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// probeRate bounds the probes that a node or a guardian sends in a second.
const probeRate = 500

// ping pings an instance on the subject that only this instance subscribes to. It fails
// with nats.ErrNoResponders if the instance's process is not connected.
func (n *Node) ping(ctx context.Context, subject string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	_, err := n.conn.RequestWithContext(ctx, subject, []byte(probeBody))
	return err
}

// steady knows since when this process has been connected without a reconnect.
type steady struct {
	conn *nats.Conn

	mu         sync.Mutex
	reconnects uint64
	since      time.Time // when a reconnect was noticed
}

// look reports whether this process has been connected for more than steadyFor.
func (s *steady) look() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.conn.Stats().Reconnects; now != s.reconnects {
		s.reconnects, s.since = now, time.Now()
	}
	return s.conn.IsConnected() && time.Since(s.since) > steadyFor
}
