package beats

import (
	"slices"
	"sync"
	"time"
)

// Beats are the heartbeats of agents. T is an agent. Its methods may be called from many
// goroutines.
type Beats[T any] struct {
	configured time.Duration
	announce   func(T)

	mu     sync.Mutex
	agents []*agent[T]
	next   int // index of the one that is announced next
	end    func()

	sending sync.Mutex // held during an announcement; guards agent.left
}

type agent[T any] struct {
	of   T
	left bool // no more heartbeats
}

// New returns Beats that call announce for each agent about once in an interval. With an interval
// of 0 or less there are no heartbeats.
func New[T any](interval time.Duration, announce func(T)) *Beats[T] {
	return &Beats[T]{configured: interval, announce: announce}
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

// Every returns the time between two heartbeats of an agent; 0: there are no heartbeats.
func (b *Beats[T]) Every() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.interval()
}

// interval is Every. b.mu is held.
func (b *Beats[T]) interval() time.Duration {
	if b.configured <= 0 {
		return 0
	}
	return max(b.configured, time.Duration(len(b.agents))*beatGap)
}

// Add sends the heartbeats of an agent until the returned function is called. When that
// function returns, no heartbeat of the agent is being sent.
func (b *Beats[T]) Add(of T) (remove func()) {
	if b.configured <= 0 {
		return func() {}
	}
	h := &agent[T]{of: of}
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
func (b *Beats[T]) begin() {
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
				b.send(h)
			}
			timer.Reset(pause)
		}
	}()
}

func (b *Beats[T]) send(h *agent[T]) {
	b.sending.Lock()
	defer b.sending.Unlock()
	if !h.left {
		b.announce(h.of)
	}
}

// turn returns the agents that are announced next, and the pause after that. b.mu is held.
func (b *Beats[T]) turn() (pause time.Duration, now []*agent[T]) {
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
