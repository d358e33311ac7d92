package mesh

import (
	"slices"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/intents"
)

// beats sends the heartbeats of a node's agents, one agent after the other, evenly spread
// over the interval.
type beats struct {
	node *Node

	mu     sync.Mutex
	agents []*host
	next   int // index of the one that is announced next
	end    func()

	sending sync.Mutex // held during an announcement; guards host.left
}

const (
	// beatGap is the least average time between two heartbeats of a process. So a process
	// with many agents sends the heartbeats of each agent less often: with 10,000 agents
	// every 100 seconds.
	beatGap = 10 * time.Millisecond
	// beatPause is the least time between two wakings of the goroutine; it may announce
	// several agents at once.
	beatPause = 50 * time.Millisecond
)

// every returns the time between two heartbeats of an agent; 0: there are no heartbeats.
func (b *beats) every() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.interval()
}

// interval is every. b.mu is held.
func (b *beats) interval() time.Duration {
	if b.node.cfg.Heartbeat <= 0 {
		return 0
	}
	return max(b.node.cfg.Heartbeat, time.Duration(len(b.agents))*beatGap)
}

// add sends the heartbeats of an agent until the returned function is called. When that
// function returns, no heartbeat of the agent is being sent.
func (b *beats) add(h *host) (remove func()) {
	if b.node.cfg.Heartbeat <= 0 {
		return func() {}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.agents = append(b.agents, h); len(b.agents) == 1 {
		b.begin()
	}
	return func() {
		b.sending.Lock()
		h.left = true
		b.sending.Unlock()
		b.mu.Lock()
		i := slices.Index(b.agents, h)
		b.agents = slices.Delete(b.agents, i, i+1)
		if i < b.next {
			b.next--
		}
		end := func() {}
		if len(b.agents) == 0 {
			end = b.end
		}
		b.mu.Unlock()
		end()
	}
}

// begin starts the goroutine. b.mu is held.
func (b *beats) begin() {
	over, ended := make(chan struct{}), make(chan struct{})
	b.end = func() {
		close(over)
		<-ended
	}
	pause, _ := b.turn()
	go func() {
		defer close(ended)
		timer := time.NewTimer(pause)
		defer timer.Stop()
		for {
			select {
			case <-over:
				return
			case <-timer.C:
			}
			b.mu.Lock()
			pause, now := b.turn()
			b.mu.Unlock()
			for _, h := range now {
				b.announce(h)
			}
			timer.Reset(pause)
		}
	}()
}

func (b *beats) announce(h *host) {
	b.sending.Lock()
	defer b.sending.Unlock()
	if !h.left {
		h.events.announce(intents.AgentHeartbeat)
	}
}

// turn returns the agents that are announced next, and the pause after that. b.mu is held.
func (b *beats) turn() (pause time.Duration, now []*host) {
	n := len(b.agents)
	if n == 0 {
		return b.interval(), nil
	}
	interval := b.interval()
	one := max(1, interval/time.Duration(n))
	batch := min(n, int((beatPause+one-1)/one))
	for range batch {
		if b.next >= n {
			b.next = 0
		}
		now = append(now, b.agents[b.next])
		b.next++
	}
	return interval * time.Duration(batch) / time.Duration(n), now
}
