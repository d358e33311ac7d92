package mesh

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope/sorted"
)

// Served is an agent that a node serves.
type Served struct {
	Entity   string
	Instance string // the id of this worker of the agent, as NATS micro and the bus name it
	Started  time.Time
	Stopping bool // it drains: it accepts no more tasks
	Health   Health
}

// Serving returns the agents that this node serves now, sorted by entity. It is for the
// process's own health checks and its log.
func (n *Node) Serving() []Served {
	var out []Served
	for _, h := range n.hosts.all() {
		out = append(out, Served{Entity: h.Entity, Instance: h.id, Started: h.started.UTC(), Stopping: h.stopping.Load(), Health: h.health()})
	}
	sorted.By(out, func(a, b Served) int { return strings.Compare(a.Entity, b.Entity) })
	return out
}

// hosts are the agents that a node serves.
type hosts struct {
	mu  sync.Mutex
	now map[*host]struct{}
}

// add adds h; the returned function removes it.
func (s *hosts) add(h *host) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil {
		s.now = make(map[*host]struct{})
	}
	s.now[h] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.now, h)
	}
}

func (s *hosts) all() []*host {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.now))
}
