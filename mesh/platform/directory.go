package platform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// served finds the entity that serves an agent_id.
type served struct {
	workers    func(context.Context) ([]client.Instance, error) // a discovery of all
	workersOf  func(ctx context.Context, entity string, enough func(client.Instance) bool) ([]client.Instance, error)
	known      map[string]string
	registered func(ctx context.Context, agentID string) (entity string, err error)
	codec      func(entity string) state.Codec

	looking sync.Mutex // held during discoveries, which take up to two seconds each
	mu      sync.Mutex
	seen    map[string][]string // entities by agent_id
	sealing map[string]sealing  // how workers encrypt their records, by entity
	version map[string][]string // versions of the agent that its workers state, by entity
	at      time.Time           // when the last discovery ended
}

// servedFor is how long the result of a discovery is used. An agent that was not found is
// looked up again after lookAgain at the earliest, because each discovery is a request to
// all workers.
const (
	servedFor = 10 * time.Second
	lookAgain = time.Second
)

// discoverBy returns how a client discovers all workers.
func discoverBy(c *client.Client) func(context.Context) ([]client.Instance, error) {
	return func(ctx context.Context) ([]client.Instance, error) { return c.Discover(ctx, "", 2*time.Second) }
}

// sealing is what the workers of an entity state about their state keys.
type sealing struct {
	on      bool     // one encrypts
	unnamed bool     // one encrypts, and does not name its keys: it is of an earlier release
	keys    []string // the ids of the keys that they have
}

// with adds what one worker says.
func (s sealing) with(metadata map[string]string) sealing {
	if metadata[wire.MetaSealed] == "" {
		return s
	}
	s.on = true
	if keys := metadata[wire.MetaSealKeys]; keys != "" {
		s.keys = append(slices.Clip(s.keys), strings.Split(keys, ",")...)
	} else {
		s.unnamed = true
	}
	return s
}

// askBy returns how a client asks the workers of one entity.
func askBy(c *client.Client) func(context.Context, string, func(client.Instance) bool) ([]client.Instance, error) {
	return func(ctx context.Context, entity string, enough func(client.Instance) bool) ([]client.Instance, error) {
		return c.WorkersUntil(ctx, entity, 2*time.Second, enough)
	}
}

// entity finds the entity of an agent. It refuses an agent whose workers encrypt their
// records if this process has no key: the imported run would be stored unencrypted until
// a worker writes it (AAIF, Security Considerations). It also refuses one whose workers do
// not have the key that this process would encrypt with: none of them could read the run.
//
// The workers' own statements prove nothing: any worker can state any agent_id. They are
// used only if neither the configuration nor the registry names the agent, and choose
// decides if several entities state the same agent_id.
func (s *served) entity(ctx context.Context, agentID, issuer string) (string, error) {
	if entity := s.configured(agentID); entity != "" {
		if s.looked().Before(time.Now().Add(-servedFor)) {
			if _, err := s.claimed(ctx, agentID); err != nil { // it also learns which workers encrypt, and with which keys
				return "", fmt.Errorf("look for the agent: %w", err)
			}
		}
		return entity, s.checkSealKey(entity)
	}
	claimed, err := s.claimed(ctx, agentID)
	if err != nil {
		return "", fmt.Errorf("look for the agent: %w", err)
	}
	entity, err := s.choose(ctx, agentID, issuer, claimed)
	if err != nil {
		return "", err
	}
	return entity, s.checkSealKey(entity)
}

// configured returns the entity that the operator names for an agent_id, "" if there is
// none. The agent need not have a worker now.
func (s *served) configured(agentID string) string {
	if entity := s.known[agentID]; entity != "" {
		return entity
	}
	for _, entity := range s.known {
		if state.AgentID(entity) == agentID {
			return entity
		}
	}
	return ""
}

// choose returns the entity of an agent_id, from those whose workers state it: the
// registered entity; else the one whose default agent_id it is; else the issuer of the
// token; else the only one.
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
		if state.AgentID(entity) == agentID { // the default agent_id, derived from the entity's name
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
	return "", fmt.Errorf("%w: workers of %d entities state that they serve it, %s and %s among them", transfer.ErrUnknownAgent, len(claimed), clip.Text(claimed[0], 128), clip.Text(claimed[1], 128))
}

// claimed returns the entities whose workers state that they serve an agent.
func (s *served) claimed(ctx context.Context, agentID string) ([]string, error) {
	asked := time.Now()
	if claimed := s.remembered(agentID, asked.Add(-servedFor)); len(claimed) > 0 {
		return claimed, nil
	}
	s.looking.Lock()
	defer s.looking.Unlock()
	if since := asked.Add(-lookAgain); s.looked().After(since) { // another transfer has just made a discovery
		return s.remembered(agentID, since), nil
	}
	// An agent is looked for twice before it is believed to be absent: a discovery does not
	// wait for a worker that answers later than the others, as one on a busy machine may.
	claimed, err := s.discover(ctx, agentID)
	if err == nil && len(claimed) == 0 {
		claimed, err = s.discover(ctx, agentID)
	}
	return claimed, err
}

// discover asks all workers what they are, and returns the entities of an agent. s.looking
// is held.
func (s *served) discover(ctx context.Context, agentID string) ([]string, error) {
	found, err := s.workers(ctx)
	if err != nil {
		return nil, err
	}
	seen, seals, version := map[string][]string{}, map[string]sealing{}, map[string][]string{}
	claim := func(id, entity string) {
		if id != "" && !slices.Contains(seen[id], entity) {
			seen[id] = append(seen[id], entity)
		}
	}
	for _, i := range found {
		claim(state.AgentID(i.Entity), i.Entity)
		claim(i.Info.Metadata[wire.MetaAgentID], i.Entity)
		version[i.Entity] = append(version[i.Entity], i.Info.Version)
		seals[i.Entity] = seals[i.Entity].with(i.Info.Metadata)
	}
	s.mu.Lock()
	s.seen, s.sealing, s.version, s.at = seen, seals, version, time.Now()
	s.mu.Unlock()
	return seen[agentID], nil
}

// remembered returns the entities that the last discovery found for an agent, if the
// discovery ended after since.
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

// ErrSealKey: no worker of the agent has the state key that this process encrypts runs with.
var ErrSealKey = errors.New("no worker of the agent has the state key that its run would be stored with")

// checkSealKey returns an error if the entity's records are encrypted and this process has no
// key, or if this process encrypts with a key that none of the entity's workers has. An
// entity without a worker passes.
func (s *served) checkSealKey(entity string) error {
	s.mu.Lock()
	theirs, known := s.sealing[entity]
	s.mu.Unlock()
	mine := s.codec(entity).Seal
	switch {
	case !known:
		return nil
	case mine == nil && theirs.on:
		return fmt.Errorf("%w: the runs of %s are stored %w here, and this process does not have the key", transfer.ErrUnknownAgent, entity, state.ErrSealed)
	case mine == nil || theirs.unnamed || slices.Contains(theirs.keys, mine.IDs()[0]):
		return nil
	}
	return fmt.Errorf("%w: %s: %w", transfer.ErrUnknownAgent, entity, ErrSealKey)
}

// CheckSealKey returns an error if the workers of an entity could not read a run that this
// process stores, or if it would be stored unencrypted and they encrypt.
func (p *Platform) CheckSealKey(ctx context.Context, entity string) error {
	if p.cfg.Stores == nil {
		return sender.ErrLiveOnly
	}
	served := &served{workers: discoverBy(p.cfg.Client), codec: func(string) state.Codec { return p.cfg.Stores.Codec }}
	if _, err := served.discover(ctx, ""); err != nil {
		return err
	}
	return served.checkSealKey(entity)
}

// ErrVersion: the agent is served in another major version than the run's.
var ErrVersion = errors.New("another major version")

// CheckVersion returns an error that wraps ErrVersion if all workers of a checkpoint's agent
// state another major version of it than the checkpoint does.
func (p *Platform) CheckVersion(ctx context.Context, c *state.Checkpoint) error {
	switch {
	case p.cfg.Stores == nil:
		return sender.ErrLiveOnly
	case c.Doc.AgentVersion == "":
		return nil
	}
	served := &served{workers: discoverBy(p.cfg.Client), workersOf: askBy(p.cfg.Client), codec: func(string) state.Codec { return p.cfg.Stores.Codec }}
	entity := c.Mesh.Entity
	if entity == "" { // of a platform that is no mesh
		var err error
		if entity, err = served.entity(ctx, c.Doc.AgentID, ""); err != nil {
			return fmt.Errorf("agent_id %q: %w", clip.Text(c.Doc.AgentID, 128), err)
		}
	}
	return served.fits(ctx, entity, c.Doc.AgentVersion)
}

// fits returns an error if all workers of an entity state another major version of the
// agent than the run's: the meaning of the run's document may have changed. One worker
// with the same version, or without one, is enough to admit the run. It asks the workers
// each time: during an upgrade an earlier discovery is soon wrong.
func (s *served) fits(ctx context.Context, entity, version string) error {
	hosted, err := s.versions(ctx, entity, version)
	if err != nil {
		return fmt.Errorf("ask the workers of %s for their version: %w", entity, err)
	}
	if len(hosted) == 0 || slices.ContainsFunc(hosted, func(v string) bool { return sameMajor(v, version) }) {
		return nil
	}
	return fmt.Errorf("%w: %w: %s is served in version %s here, and the run is of version %s", transfer.ErrUnknownAgent, ErrVersion, entity, clip.Text(hosted[0], 128), clip.Text(version, 128))
}

// versions asks the workers of an entity for their versions, until one has the same major version.
// If none answers, those of the last discovery count.
func (s *served) versions(ctx context.Context, entity, version string) ([]string, error) {
	found, err := s.workersOf(ctx, entity, func(i client.Instance) bool { return sameMajor(i.Info.Version, version) })
	if err != nil {
		return nil, err
	}
	var now []string
	for _, i := range found {
		now = append(now, i.Info.Version)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(now) == 0 {
		now = s.version[entity]
	}
	return now, nil
}

// sameMajor reports whether two versions of an agent are the same before the first dot,
// or one of them is unknown.
func sameMajor(a, b string) bool {
	if a == "" || b == "" || a == wire.NoVersion || b == wire.NoVersion {
		return true
	}
	x, _, _ := strings.Cut(a, ".")
	y, _, _ := strings.Cut(b, ".")
	return strings.TrimLeft(x, "0") == strings.TrimLeft(y, "0") // discovery has no leading zeros
}
