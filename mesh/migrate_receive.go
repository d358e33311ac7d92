package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
)

// ReceiverOptions say how [Node.Receiver] takes runs in.
type ReceiverOptions struct {
	// Handoffs keeps the records of handoffs; see jetstream.NewHandoffs.
	// Required.
	Handoffs state.Store
	// Platform is the name that tokens must be for. Default [Durable].Platform.
	Platform string
	// Issuers are patterns of the entities that may hand over any agent's runs,
	// besides the agent itself. Default none.
	Issuers []string
	// Agents are agents that are known here although no worker serves them now,
	// by agent_id. Those that are served are known, too.
	Agents map[string]string // agent_id → entity
	// Codec says how an entity's documents are kept at rest. Default
	// [Durable].Codec for all.
	Codec func(entity string) state.Codec

	Limits  state.HandoffLimits
	Stay    time.Duration // see handoff.ReceiverConfig
	Observe func(ctx context.Context, phase state.Phase, done bool)
}

// Receiver makes a receiver of runs that other platforms hand over to the agents
// of this mesh. It does no I/O. Its signatures are those that the node trusts.
func (n *Node) Receiver(opts ReceiverOptions) (*handoff.Receiver, error) {
	d := n.cfg.Durable
	if d == nil {
		return nil, errLiveOnly
	}
	if opts.Handoffs == nil {
		return nil, errors.New("handoff receiver: Handoffs is needed")
	}
	if opts.Platform == "" {
		opts.Platform = d.Platform
	}
	if opts.Codec == nil {
		opts.Codec = func(string) state.Codec { return d.Codec }
	}
	keys := n.cfg.Verifier.Ring
	if keys == nil {
		keys = new(sign.Ring)
	}
	served := &served{node: n, known: opts.Agents, codec: opts.Codec}
	return handoff.NewReceiver(handoff.ReceiverConfig{
		Platform: opts.Platform, Keys: keys, Issuers: opts.Issuers, Agent: served.entity,
		Handoffs: opts.Handoffs, States: d.States, Codec: opts.Codec,
		Kick:    func(ctx context.Context, c *state.Checkpoint) error { _, err := kickRun(ctx, d.Queue, c); return err },
		Replies: followed{n}, Forward: n.forward,
		Now: func(ctx context.Context) time.Time {
			if now, err := d.Clock.Now(ctx); err == nil {
				return now
			}
			return time.Now()
		},
		Limits: opts.Limits, Stay: opts.Stay, Observe: opts.Observe, Logger: n.log,
	})
}

// served knows which entity serves an agent.
type served struct {
	node  *Node
	known map[string]string
	codec func(entity string) state.Codec

	mu     sync.Mutex
	seen   map[string]string
	sealed map[string]bool // entities
	at     time.Time
}

// servedFor is for how long a look at the mesh counts. An agent that is not found
// is looked for at once.
const servedFor = 10 * time.Second

// entity finds the entity of an agent. One whose workers encrypt what they store is
// not found by who could not: a run of it would lie about in the clear until its
// worker writes (AAIF, Security Considerations).
func (s *served) entity(ctx context.Context, agentID string) (string, error) {
	if entity := s.known[agentID]; entity != "" {
		return entity, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if entity := s.seen[agentID]; entity != "" && time.Since(s.at) < servedFor {
		return entity, s.maySee(entity)
	}
	found, err := s.node.Discover(ctx, "", 2*time.Second)
	if err != nil {
		return "", fmt.Errorf("look for the agent: %w", err)
	}
	s.seen, s.sealed, s.at = map[string]string{}, map[string]bool{}, time.Now()
	for _, i := range found {
		s.seen[state.AgentID(i.Entity)] = i.Entity
		s.sealed[i.Entity] = s.sealed[i.Entity] || i.Info.Metadata[MetaSealed] != ""
	}
	for _, i := range found {
		if id := i.Info.Metadata[MetaAgentID]; id != "" {
			s.seen[id] = i.Entity
		}
	}
	if entity := s.seen[agentID]; entity != "" {
		return entity, s.maySee(entity)
	}
	return "", fmt.Errorf("%w: no worker serves it", state.ErrUnknownAgent)
}

func (s *served) maySee(entity string) error {
	if s.sealed[entity] && s.codec(entity).Seal == nil {
		return fmt.Errorf("%w: the runs of %s are stored %w here, and the key is not at hand", state.ErrUnknownAgent, entity, state.ErrSealed)
	}
	return nil
}

// followed reads replies for a receiver.
type followed struct{ node *Node }

// Follow yields the replies to a task by their numbers, see [handoff.Replies].
func (f followed) Follow(ctx context.Context, entity, taskID string, after uint64) iter.Seq2[handoff.Reply, error] {
	return func(yield func(handoff.Reply, error) bool) {
		for msg, err := range f.node.cfg.Durable.Replies.Follow(ctx, entity, taskID, jetstream.FollowOptions{}) {
			if err != nil {
				yield(handoff.Reply{}, err)
				return
			}
			seq, err := strconv.ParseUint(msg.Header.Get(jetstream.HeaderSeq), 10, 64)
			if err != nil {
				continue // not one of ours
			}
			e, _, err := f.node.decode(&nats.Msg{Data: msg.Data, Header: msg.Header})
			if err != nil {
				continue
			}
			reply := handoff.Reply{Seq: seq, Data: msg.Data, Last: e.Type != envelope.TypeStream}
			if kind := msg.Header[headerContentType]; kind != nil {
				reply.Header = map[string][]string{headerContentType: slices.Clone(kind)}
			}
			if (seq > after || reply.Last) && !yield(reply, nil) {
				return
			}
		}
	}
}

// forward gives a command that came with a handoff to its entity, as it is.
func (n *Node) forward(ctx context.Context, entity string, command []byte) ([]byte, error) {
	e, err := envelope.ParseLimits(command, n.limits)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", state.ErrHandoffInvalid, err)
	}
	reply, err := n.sendCommand(ctx, entity, e)
	if err != nil {
		// What the agent says is an answer, too.
		reply = e.Reply(envelope.TypeError, border(err).Payload())
	}
	return json.Marshal(reply)
}
