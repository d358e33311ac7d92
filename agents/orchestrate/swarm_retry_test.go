package orchestrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// recovering is an agent's model whose first question fails.
type recovering struct {
	agentModel
	questions atomic.Int32
}

func (m *recovering) Ask(ctx context.Context, q orchestrate.Question) (json.RawMessage, error) {
	if m.questions.Add(1) == 1 {
		return nil, envelope.Errorf(envelope.CodeBusy, "the provider is busy")
	}
	return m.agentModel.Ask(ctx, q)
}

// A swarm without a score because its scorers were unavailable is retried. Only the failed scorers
// are called again.
func TestASwarmWithoutScoresIsTriedAgain(t *testing.T) {
	t.Parallel()
	t.Run("the own model", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		c := newTally()
		r.serve(true, c, "agent.a", "agent.b", "agent.c")
		r.retries = 1
		own := &recovering{agentModel: agentModel{answer: "best"}}
		r.serve(true, team(plan(t, three(`],"consensus":{"strategy":"best_of_n"}`), ""), own), boss)
		got := r.result(r.submit(`{"text":"go"}`, ""))
		if counts := c.all(); got.payload != `{"n":2}` || own.questions.Load() != 2 || counts["agent.a"]+counts["agent.b"]+counts["agent.c"] != 3 {
			t.Errorf("%s, %v, %d questions, members %v", got.payload, got.err, own.questions.Load(), counts)
		}
	})
	t.Run("evaluators", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		var busy, mute atomic.Int32
		r.serve(true, newTally(), "agent.a", "agent.b", "agent.c")
		r.serve(true, mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
			if busy.Add(1) <= 3 {
				return nil, envelope.Errorf(envelope.CodeBusy, "busy")
			}
			return json.RawMessage(`{"score":1}`), nil
		}), "agent.busy")
		r.serve(true, mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
			mute.Add(1)
			return json.RawMessage(`{"text":"well"}`), nil
		}), "agent.mute")
		r.retries = 1
		r.serve(true, team(plan(t, three(`,{"ref":"agent.busy","alias":"busy","role":"evaluator"},{"ref":"agent.mute","alias":"mute","role":"evaluator"}],"consensus":{"strategy":"best_of_n"}`), ""), nil), boss)
		got := r.result(r.submit(`{"text":"go"}`, ""))
		if got.payload != `{"n":0}` || busy.Load() != 6 || mute.Load() != 3 {
			t.Errorf("%s, %v, asked %d and %d times", got.payload, got.err, busy.Load(), mute.Load())
		}
	})
	t.Run("no answer that another try would change", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.serve(false, newTally(), "agent.a", "agent.b", "agent.c")
		r.serve(false, team(plan(t, three(`],"consensus":{"strategy":"best_of_n"}`), ""), &agentModel{answer: `{"scores":[1]}`}), boss)
		if got := r.ask(`{"text":"go"}`, ""); got.err == nil || got.err.Code != envelope.CodeSwarm || got.err.Retryable {
			t.Errorf("%+v", got.err)
		}
	})
}

// If the agent's own model merges a tie, time is reserved for the model.
func TestTimeIsReservedForTheMergeOfATie(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, more, entity string }{
		{"members of a vote", `],"consensus":{"strategy":"majority_vote"}`, "agent.a"},
		{"evaluators", `,{"ref":"agent.j","alias":"j","role":"evaluator"}],"consensus":{"strategy":"best_of_n"}`, "agent.j"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			left := make(chan time.Duration, 8)
			r.serve(false, mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
				if task.Envelope.To == tt.entity {
					left <- time.Until(task.Deadline)
				}
				return fmt.Appendf(nil, `{"score":1,"of":%q}`, task.Envelope.To), nil
			}), "agent.a", "agent.b", "agent.c", "agent.j")
			r.serve(false, team(plan(t, three(tt.more), extras(`"tie":"merge"`)), &agentModel{work: `{"v":9}`}), boss)
			if got := r.ask(`{"text":"go"}`, `{"timeout_ms":100000}`); got.payload != `{"v":9}` {
				t.Errorf("%s, %v", got.payload, got.err)
			}
			if d := within(t, "one of them is asked", left); d > 80*time.Second {
				t.Errorf("it has %s of 100 s", d)
			}
		})
	}
}

// Members of a large swarm share commits. If one fails the swarm, the run contains the others'
// answers so far, and a retry does not call them again.
func TestAFailedSwarmKeepsTheAnswersItHas(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := newTally()
	var failed atomic.Int32
	r.serve(true, c, "agent.a")
	r.serve(true, mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		failed.Add(1)
		return nil, envelope.Errorf(envelope.CodeTool, "it failed")
	}), "agent.z")
	members := []string{`{"ref":"agent.a","alias":"a"}`, `{"ref":"agent.z","alias":"z"}`}
	for i := range 48 {
		members = append(members, fmt.Sprintf(`{"ref":"agent.n%d","alias":"n%[1]d"}`, i))
	}
	block := `{"parallel_execution":true,"subagents":[` + strings.Join(members, ",") + `]}`
	r.serve(true, team(plan(t, block, extras(`"width":1,"steps":{"z":{"on_error":"fail"}}`)), nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	if got := r.result(task); got.err == nil || got.err.Code != envelope.CodeTool || failed.Load() != 1 {
		t.Fatalf("%s, %v", got.payload, got.err)
	}
	var states []string
	for _, s := range r.checkpoint(task).Doc.SubagentStates {
		states = append(states, fmt.Sprintf("%s %s %s", s.Alias, s.Status, s.Output))
	}
	if want := []string{`a completed {"n":0}`, "z failed "}; !slices.Equal(states, want) {
		t.Errorf("subagent_states %q, want %q", states, want)
	}
}

// unread is a directory that cannot read the definition of its judge for the first so many times.
type unread struct {
	judge orchestrate.Member
	times atomic.Int32
}

func (d *unread) Find(_ context.Context, ref string) (orchestrate.Member, error) {
	switch {
	case ref == "file:gone.yaml":
		return orchestrate.Member{}, orchestrate.ErrUnknown
	case ref != "file:j.yaml":
		return orchestrate.Member{Entity: ref}, nil
	case d.times.Add(-1) >= 0:
		return orchestrate.Member{}, orchestrate.ErrUnanswered
	}
	return d.judge, nil
}

// A member whose definition says that it judges does so, too, if the definition cannot be read for a
// moment. A swarm that needs it fails so that it is tried again.
func TestARoleThatCannotBeReadIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		times int32
		more  string // members
		want  string
	}{
		{"once", 1, "", `{"n":2}`},
		{"always", 1 << 20, "", "!E_UNAVAILABLE true"},
		{"always, and another is unknown", 1 << 20, `,{"ref":"file:gone.yaml","alias":"gone"}`, "!E_UNAVAILABLE true"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := newTally()
			r.serve(false, c, "agent.a", "agent.b", "agent.c")
			r.serve(false, judge("score"), "agent.j")
			dir := &unread{judge: orchestrate.Member{Entity: "agent.j", Def: definitionOf(t, `{"role":"evaluator"}`)}}
			dir.times.Store(tt.times)
			p := plan(t, three(`,{"ref":"file:j.yaml","alias":"j"}`+tt.more+`],"consensus":{"strategy":"best_of_n"}`), "")
			r.serve(false, teamWith(p, nil, orchestrate.Options{Directory: dir}), boss)
			got := r.ask(`{"text":"go"}`, `{"timeout_ms":20000}`)
			if got.err != nil {
				got.payload = fmt.Sprintf("!%s %v", got.err.Code, got.err.Retryable)
			}
			if got.payload != tt.want {
				t.Errorf("%s, want %s: %v", got.payload, tt.want, got.err)
			}
		})
	}
}
