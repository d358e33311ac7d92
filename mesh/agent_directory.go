package mesh

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// served knows which entity serves an agent.
type served struct {
	node       *Node
	known      map[string]string
	registered func(ctx context.Context, agentID string) (entity string, err error)
	codec      func(entity string) state.Codec

	looking sync.Mutex // over a look, which takes up to two seconds
	mu      sync.Mutex
	seen    map[string][]string // entities by agent_id
	sealed  map[string]bool     // entities
	version map[string][]string // of the agent, by entity: as its workers say
	at      time.Time           // of the last look, when it ended
}

// servedFor is for how long a look at the mesh counts. An agent that is not found is
// looked for again after lookAgain: each look is a question to all workers.
const (
	servedFor = 10 * time.Second
	lookAgain = time.Second
)

// entity finds the entity of an agent. One whose workers encrypt what they store is
// not found by who could not: a run of it would lie about in the clear until its
// worker writes (AAIF, Security Considerations).
//
// What workers say of themselves proves nothing: any of them may claim any agent_id.
// So it only counts where the operator's configuration and the registry say nothing,
// and takes no agent_id away from another entity that claims it, too.
func (s *served) entity(ctx context.Context, agentID, issuer string) (string, error) {
	if entity := s.known[agentID]; entity != "" {
		return entity, nil
	}
	for _, entity := range s.known {
		if state.AgentID(entity) == agentID {
			return entity, nil
		}
	}
	claimed, err := s.claimed(ctx, agentID)
	if err != nil {
		return "", fmt.Errorf("look for the agent: %w", err)
	}
	entity, err := s.choose(ctx, agentID, issuer, claimed)
	if err != nil {
		return "", err
	}
	return entity, s.maySee(entity)
}

// choose is who is meant of those that claim an agent_id.
func (s *served) choose(ctx context.Context, agentID, issuer string, claimed []string) (string, error) {
	if s.registered != nil {
		entity, err := s.registered(ctx, agentID)
		switch {
		case err != nil:
			return "", fmt.Errorf("look for the agent in the registry: %w", err)
		case entity != "" && slices.Contains(claimed, entity):
			return entity, nil
		case entity != "":
			return "", fmt.Errorf("%w: it is registered as %s, which no worker serves", transfer.ErrUnknownAgent, clip.Text(entity, 128))
		}
	}
	for _, entity := range claimed {
		if state.AgentID(entity) == agentID { // which follows from its name
			return entity, nil
		}
	}
	switch {
	case len(claimed) == 0:
		return "", fmt.Errorf("%w: no worker serves it", transfer.ErrUnknownAgent)
	case slices.Contains(claimed, issuer):
		return issuer, nil
	case len(claimed) == 1:
		return claimed[0], nil
	}
	return "", fmt.Errorf("%w: workers of %d entities say that they serve it, %s and %s among them", transfer.ErrUnknownAgent, len(claimed), clip.Text(claimed[0], 128), clip.Text(claimed[1], 128))
}

// claimed are the entities whose workers say that they serve an agent.
func (s *served) claimed(ctx context.Context, agentID string) ([]string, error) {
	asked := time.Now()
	if claimed := s.remembered(agentID, asked.Add(-servedFor)); len(claimed) > 0 {
		return claimed, nil
	}
	s.looking.Lock()
	defer s.looking.Unlock()
	if since := asked.Add(-lookAgain); s.looked().After(since) { // by another handoff
		return s.remembered(agentID, since), nil
	}
	found, err := s.node.Discover(ctx, "", 2*time.Second)
	if err != nil {
		return nil, err
	}
	seen, sealed, version := map[string][]string{}, map[string]bool{}, map[string][]string{}
	claim := func(id, entity string) {
		if id != "" && !slices.Contains(seen[id], entity) {
			seen[id] = append(seen[id], entity)
		}
	}
	for _, i := range found {
		claim(state.AgentID(i.Entity), i.Entity)
		claim(i.Info.Metadata[MetaAgentID], i.Entity)
		version[i.Entity] = append(version[i.Entity], i.Info.Version)
		sealed[i.Entity] = sealed[i.Entity] || i.Info.Metadata[MetaSealed] != ""
	}
	s.mu.Lock()
	s.seen, s.sealed, s.version, s.at = seen, sealed, version, time.Now()
	s.mu.Unlock()
	return seen[agentID], nil
}

// remembered are the entities that the last look found for an agent, if that ended
// after since.
func (s *served) remembered(agentID string, since time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.Before(since) {
		return nil
	}
	return s.seen[agentID]
}

func (s *served) looked() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

func (s *served) maySee(entity string) error {
	s.mu.Lock()
	sealed := s.sealed[entity]
	s.mu.Unlock()
	if sealed && s.codec(entity).Seal == nil {
		return fmt.Errorf("%w: the runs of %s are stored %w here, and this process does not have the key", transfer.ErrUnknownAgent, entity, state.ErrSealed)
	}
	return nil
}

// fits reports that an entity serves its agent in another major version than the one
// that a run was begun under, as far as both say: what a document means may have
// changed then. A worker's word only ever lets a run in.
func (s *served) fits(_ context.Context, entity, version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	hosted := s.version[entity]
	if len(hosted) == 0 || slices.ContainsFunc(hosted, func(v string) bool { return sameMajor(v, version) }) {
		return nil
	}
	return fmt.Errorf("%w: %s is served in version %s here, and the run is of version %s", transfer.ErrUnknownAgent, entity, clip.Text(hosted[0], 128), clip.Text(version, 128))
}

// noVersion is what an agent has whose document does not say its version.
const noVersion = "0.0.0"

// sameMajor reports whether two versions of an agent agree in what stands before the
// first dot, or one of them says nothing.
func sameMajor(a, b string) bool {
	if a == "" || b == "" || a == noVersion || b == noVersion {
		return true
	}
	x, _, _ := strings.Cut(a, ".")
	y, _, _ := strings.Cut(b, ".")
	return x == y
}
