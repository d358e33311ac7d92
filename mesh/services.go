package mesh

import (
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/service"
)

// services answers the requests of "nats micro" to all services, for all agents of a node.
// With a subscription for each agent the node would receive each request once per agent.
type services struct {
	node *Node

	mu   sync.Mutex
	n    int // agents
	subs []*nats.Subscription
	crew *sched.Crew // answers
}

// maxSurveys bounds the requests that wait; every agent answers each of them.
const maxSurveys = 64

// join adds an agent until leave is called. It returns the subscriptions, which all agents
// share.
func (s *services) join() (subs []*nats.Subscription, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n > 0 {
		s.n++
		return s.subs, nil
	}
	s.crew = sched.NewCrew(1, maxSurveys)
	crew := s.crew
	for i, verb := range service.Verbs {
		to, err := micro.ControlSubject(verb, "", "")
		if err != nil {
			return nil, err
		}
		sub, err := s.node.control.Subscribe(to, "", func(msg *nats.Msg) {
			crew.Go(func() {
				for _, h := range s.node.hosts.all() {
					h.heedful(to, h.service.Monitor(i))(msg)
				}
			})
		})
		if err != nil {
			s.end()
			return nil, err
		}
		s.subs = append(s.subs, sub)
	}
	s.n = 1
	return s.subs, nil
}

// leave ends the subscriptions with the last agent.
func (s *services) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n--; s.n == 0 {
		s.end()
	}
}

// end ends the subscriptions. s.mu is held.
func (s *services) end() {
	for _, sub := range s.subs {
		sub.Unsubscribe()
	}
	s.node.control.Forget(slices.Clone(s.subs))
	s.subs = nil
	s.crew.Close()
}
