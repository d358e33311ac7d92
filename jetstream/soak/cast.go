package soak

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// The agents that the workers of a soak host, and the person who gets tasks.
const (
	Entity        = "agent.soak_chain"    // a Go handler that commits its own steps
	LoopEntity    = "agent.soak_loop"     // a model that calls tools; calls with an unknown outcome time out
	SettleEntity  = "agent.soak_settle"   // the same; a person decides about calls with an unknown outcome
	ProgramEntity = "agent.soak_program"  // a program
	TeamEntity    = "agent.soak_pipeline" // in turn: the chain, a person, the chain
	SwarmEntity   = "agent.soak_swarm"    // three voters
	VoterEntity   = "agent.soak_voter"
	person        = "human.soak"
)

// asked lists the agents that clients submit tasks to, and entities all agents, for the key
// that they share.
var (
	asked    = []string{Entity, LoopEntity, SettleEntity, ProgramEntity, TeamEntity, SwarmEntity}
	entities = append(asked[:len(asked):len(asked)], VoterEntity)
)

// teamDocument and swarmDocument are the teams.
var (
	//go:embed team.yaml
	teamDocument []byte
	//go:embed swarm.yaml
	swarmDocument []byte
)

// members is how many tasks a team sends to its members, people included.
var members = map[string]int{TeamEntity: 3, SwarmEntity: 3}

// A part is one agent that a worker hosts.
type part struct {
	entity string
	serve  func(ctx context.Context, node *mesh.Node, ready func()) error
}

// cast returns the agents that a worker hosts.
func cast(cfg workerConfig, g *gates, owner func(string), log *slog.Logger) ([]part, error) {
	handler := func(entity string, h mesh.Handler) part {
		return part{entity, func(ctx context.Context, node *mesh.Node, ready func()) error {
			return node.Serve(ctx, mesh.Agent{Entity: entity, Concurrency: cfg.Places, Queue: 4 * cfg.Places, Ready: ready, Handler: h})
		}}
	}
	all := []part{
		handler(Entity, &chain{effects: cfg.Effects, lease: cfg.Lease, system: cfg.System, gates: g, forgets: cfg.Break == BreakForget, owner: owner}),
		handler(VoterEntity, mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
			return json.RawMessage(`{"text":"aye"}`), nil
		})),
	}
	var errs []error
	add := func(a *agents.Agent, err error) {
		if errs = append(errs, err); err != nil {
			return
		}
		all = append(all, part{a.Entity, func(ctx context.Context, node *mesh.Node, ready func()) error {
			a.Ready = ready
			return a.Run(ctx, node)
		}})
	}
	add(loopAgent(LoopEntity, agents.LostTimeOut, cfg, g, owner, log))
	add(loopAgent(SettleEntity, agents.LostAsk, cfg, g, owner, log))
	add(programAgent(cfg, owner, log))
	add(teamAgent(TeamEntity, "team.yaml", teamDocument, cfg, owner, log))
	add(teamAgent(SwarmEntity, "swarm.yaml", swarmDocument, cfg, owner, log))
	return all, errors.Join(errs...)
}

func teamAgent(entity, name string, document []byte, cfg workerConfig, owner func(string), log *slog.Logger) (*agents.Agent, error) {
	doc, err := aaif.Parse(document, aaif.Options{Name: name, Kind: aaif.KindAgent})
	if err != nil {
		return nil, err
	}
	a, err := agents.New(doc, agents.Options{As: entity, Concurrency: cfg.Places, Queue: 4 * cfg.Places, Logger: log})
	if err != nil {
		return nil, err
	}
	a.Handler = owned{a.Handler, owner}
	return a, nil
}

// owned is a handler that reports the name under which its worker owns runs.
type owned struct {
	mesh.Handler
	owner func(string)
}

// Handle reports the owner and runs the task.
func (o owned) Handle(ctx context.Context, t *mesh.Task) (json.RawMessage, error) {
	if run := t.Run(); run != nil {
		o.owner(run.View().Mesh.Owner)
	}
	return o.Handler.Handle(ctx, t)
}

// draw chooses a task at random: its agent, its expected effects and its payload.
func draw(rng *rand.Rand) (entity string, effects []expected, payload []byte) {
	switch n := rng.IntN(24); {
	case n < 11:
		o := order{Steps: 1 + rng.IntN(4), Once: rng.IntN(3) == 0}
		payload, _ = json.Marshal(o)
		return Entity, o.effects(), payload
	case n < 16:
		return LoopEntity, loopEffects, []byte("{}")
	case n < 18:
		return SettleEntity, loopEffects, []byte("{}")
	case n < 20:
		return ProgramEntity, []expected{{}}, []byte("{}")
	case n < 22:
		payload, _ = json.Marshal(order{Steps: 1 + rng.IntN(2)})
		return TeamEntity, nil, payload
	}
	return SwarmEntity, nil, []byte(`{"text":"shall we?"}`)
}

// order is the payload of a chain's task.
type order struct {
	Steps int  `json:"steps"`
	Once  bool `json:"once"` // the effects are not safe to repeat
	Wait  bool `json:"wait"` // before its second step the chain waits until it is asked to move
}

func (o order) effects() (all []expected) {
	for i := range o.Steps {
		all = append(all, expected{Step: i, Once: o.Once})
	}
	return all
}

// ordered returns the expected effects of a task that a team sent to a member.
func ordered(task *envelope.Envelope) []expected {
	var o order
	if task.To != Entity || json.Unmarshal(task.Payload, &o) != nil {
		return nil
	}
	return o.effects()
}
