package orchestrate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/state"
)

// agentModel is a model with a given answer that records its questions.
type agentModel struct {
	work, answer string
	mu           sync.Mutex
	asked        []orchestrate.Question
	given        []json.RawMessage
}

func (m *agentModel) Work(_ context.Context, payload json.RawMessage) (json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.given = append(m.given, payload)
	return json.RawMessage(m.work), nil
}

func (m *agentModel) Ask(_ context.Context, q orchestrate.Question) (json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, q)
	if m.answer == "" {
		return nil, errors.New("the model is away")
	}
	if m.answer == "best" { // the number of each candidate is its score
		var in struct {
			Candidates []struct{ Output struct{ N float64 } }
		}
		if err := json.Unmarshal(q.Input, &in); err != nil {
			return nil, err
		}
		scores := []float64{}
		for _, c := range in.Candidates {
			scores = append(scores, c.Output.N)
		}
		return json.Marshal(map[string]any{"scores": scores})
	}
	return json.RawMessage(m.answer), nil
}

func (m *agentModel) Relayed() bool { return false }

func (m *agentModel) Save(*state.Checkpoint) {}

// Used returns a thousand tokens.
func (m *agentModel) Used() orchestrate.Usage { return orchestrate.Usage{InputTokens: 1000} }

// Without a member that merges or scores, the agent's own model does.
func TestTheOwnModelMergesAndScores(t *testing.T) {
	t.Parallel()
	best := three(`],"consensus":{"strategy":"best_of_n"}`)
	for _, tt := range []struct {
		name, block, root string
		agentModel        *agentModel
		want, winner, by  string
		asked, given      int
	}{
		{"it merges", three("]"), "", &agentModel{work: `{"text":"all"}`}, `{"text":"all"}`, "", "model", 0, 1},
		{"it scores", best, "", &agentModel{answer: "best"}, `{"n":2}`, "c", "", 1, 0},
		{"its scores cannot be used", best, "", &agentModel{answer: `{"scores":[1]}`}, "!E_SWARM no evaluator has given a usable score; model: there are 1 scores for 3 candidates", "", "", 1, 0},
		// Why is for this side's log.
		{"it is away", best, "", &agentModel{}, "!E_SWARM no evaluator has given a usable score; model: E_INTERNAL: the agent failed for an internal reason", "", "", 1, 0},
		{"not where a vote decides", three(`],"consensus":{"strategy":"majority_vote"}`), extras(`"tie":"first"`), &agentModel{}, `{"n":0}`, "a", "", 0, 0},
		{"but where a tie is merged", three(`],"consensus":{"strategy":"majority_vote"}`), extras(`"tie":"merge"`), &agentModel{work: `{"n":9}`}, `{"n":9}`, "", "model", 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.serve(false, newTally(), "agent.a", "agent.b", "agent.c")
			r.serve(false, team(plan(t, tt.block, tt.root), tt.agentModel), boss)
			got := r.ask(`{"text":"go"}`, `{"timeout_ms":60000}`)
			payload := got.payload
			if got.err != nil {
				payload = fmt.Sprintf("!%s %s", got.err.Code, got.err.Message)
			}
			if payload != tt.want || got.swarm.Winner != tt.winner || got.swarm.MergedBy != tt.by || len(tt.agentModel.asked) != tt.asked || len(tt.agentModel.given) != tt.given {
				t.Errorf("%s, winner %q, merged by %q, asked %d, given %d; want %s, %q, %q, %d, %d", payload, got.swarm.Winner, got.swarm.MergedBy, len(tt.agentModel.asked), len(tt.agentModel.given),
					tt.want, tt.winner, tt.by, tt.asked, tt.given)
			}
			for _, p := range tt.agentModel.given {
				var sent struct {
					Results []orchestrate.MemberResult
					Swarm   *orchestrate.Record
				}
				if err := json.Unmarshal(p, &sent); err != nil || len(sent.Results) != 3 || (sent.Swarm == nil) != (tt.root == "") {
					t.Errorf("the model was given %s, %v", p, err)
				}
			}
		})
	}
}

// A swarm that never asks the agent's model does not need one.
func TestASwarmNeedsItsOwnModelOnlyIfNoMemberMergesOrScores(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		block, root string
		want        bool
	}{
		{three("]"), "", true},
		{three(`,{"ref":"agent.s","alias":"synthesizer"}]`), "", false},
		{three(`],"consensus":{"strategy":"majority_vote"}`), "", false},
		{three(`],"consensus":{"strategy":"majority_vote"}`), extras(`"tie":"merge"`), true},
		{three(`],"consensus":{"strategy":"first_success"}`), "", false},
		{three(`],"consensus":{"strategy":"best_of_n"}`), "", true},
		{three(`,{"ref":"agent.j","alias":"j","role":"evaluator"}],"consensus":{"strategy":"best_of_n"}`), "", false},
	} {
		p := plan(t, tt.block, tt.root)
		p.OwnModel = true
		if got := p.NeedsMind(); got != tt.want {
			t.Errorf("%s %s: %v, want %v", tt.block, tt.root, got, tt.want)
		}
	}
}
