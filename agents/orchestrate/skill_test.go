package orchestrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// inTurn is a directory that resolves a skill to one agent after the other.
type inTurn struct {
	entities []string
	asked    atomic.Int64
}

func (d *inTurn) Find(_ context.Context, _ string) (orchestrate.Member, error) {
	n := int(d.asked.Add(1)) - 1
	return orchestrate.Member{Entity: d.entities[min(n, len(d.entities)-1)]}, nil
}

// If the agent of a skill cannot do a live step now, another agent with the skill gets it.
func TestASkillIsTriedElsewhere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(false, says("!E_UNAVAILABLE"), "agent.sick")
	r.serve(false, says(`{"text":"done"}`), "agent.well")
	dir := &inTurn{entities: []string{"agent.sick", "agent.well"}}
	team := orchestrate.New(plan(t, `{"role":"orchestrator","subagents":[{"ref":"skill:law","alias":"a"}],"pipeline":["a","a"]}`, ""), orchestrate.Options{Directory: dir})
	r.serve(false, mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		res, err := team.Handle(ctx, task, nil)
		return res.Payload, err
	}), boss)
	if a := r.ask(`{"text":"x"}`, ""); a.err != nil || a.payload != `{"text":"done"}` {
		t.Fatalf("%+v", a)
	}
	if n := dir.asked.Load(); n != 3 { // twice for the first step, once for the second
		t.Errorf("asked %d times", n)
	}
}

// The worker of a team is killed while the agent that was chosen for a skill works.
// The next worker finds another agent for the skill, and still waits for the first one:
// otherwise both would do the step.
func TestADurableStepStaysWithTheAgentOfItsSkill(t *testing.T) {
	t.Parallel()
	for _, block := range []string{
		`{"role":"orchestrator","subagents":[{"ref":"skill:law","alias":"a"}],"pipeline":["a"]}`,
		`{"role":"orchestrator","subagents":[{"ref":"skill:law","alias":"a"}],"parallel_execution":true}`,
	} {
		r := newRig(t).shortLeases()
		c := newTally("agent.a")
		r.serve(true, c, "agent.a", "agent.b")
		p := plan(t, block, "")
		first := r.serve(true, teamWith(p, nil, orchestrate.Options{Directory: &inTurn{entities: []string{"agent.a"}}}), boss)
		task := r.submit(`{"text":"go"}`, "")
		until(t, "the first agent works", func() bool { return c.all()["agent.a"] == 1 })
		first.kill()
		r.serve(true, teamWith(p, nil, orchestrate.Options{Directory: &inTurn{entities: []string{"agent.b"}}}), boss)
		r.staysWithTheFirst(c, task, p.Pattern)
	}
}

// staysWithTheFirst waits until a second worker has claimed the run, lets agent.a end, and fails the test if
// agent.b was asked, too.
func (r *rig) staysWithTheFirst(c *tally, task *envelope.Envelope, what any) {
	t := r.t
	t.Helper()
	result := make(chan answer, 1)
	go func() { result <- r.result(task) }()
	until(t, "the second worker has claimed the run", func() bool {
		cp, err := r.client.Run(t.Context(), task.To, task.ID)
		return err == nil && cp.Mesh.Epoch > 1
	})
	c.open("agent.a")
	got := within(t, "the result", result)
	if n := c.all(); n["agent.a"] != 1 || n["agent.b"] != 0 || got.err != nil {
		t.Errorf("%v: asked %v: %+v", what, n, got)
	}
}

// So it is if the next worker has another version of the document, in which the step's alias is
// another agent.
func TestADurableStepStaysWithTheAgentOfItsReference(t *testing.T) {
	t.Parallel()
	for _, block := range []string{
		`{"role":"orchestrator","subagents":[{"ref":"%s","alias":"a"}],"pipeline":["a"]}`,
		`{"role":"orchestrator","subagents":[{"ref":"%s","alias":"a"}],"parallel_execution":true}`,
	} {
		r := newRig(t).shortLeases()
		c := newTally("agent.a")
		r.serve(true, c, "agent.a", "agent.b")
		first := r.serve(true, teamWith(plan(t, fmt.Sprintf(block, "agent.a"), ""), nil, orchestrate.Options{}), boss)
		task := r.submit(`{"text":"go"}`, "")
		until(t, "the first agent works", func() bool { return c.all()["agent.a"] == 1 })
		first.kill()
		p := plan(t, fmt.Sprintf(block, "agent.b"), "")
		r.serve(true, teamWith(p, nil, orchestrate.Options{}), boss)
		r.staysWithTheFirst(c, task, p.Pattern)
	}
}

// The sender wants this agent's own answer, so the receiver of a rule is called. The
// worker is killed while it works. The next worker finds another agent for the skill, and
// still waits for the first one.
func TestACalledReceiverStaysTheAgentOfItsSkill(t *testing.T) {
	t.Parallel()
	r := newRig(t).shortLeases()
	c := newTally("agent.b")
	r.serve(true, c, "agent.a", "agent.b", "agent.c")
	const block = `{"role":"orchestrator","subagents":[{"ref":"agent.a","alias":"a"}],"pipeline":["a"],
		"handoff":[{"condition":{"lang":"always"},"target_agent":"skill:law"}]}`
	by := func(entity string) mesh.HandlerFunc {
		h := orchestrate.NewHandoffs(definitionOf(t, block), orchestrate.HandoffOptions{Directory: &inTurn{entities: []string{entity}}})
		return teamWith(plan(t, block, ""), nil, orchestrate.Options{Handoffs: h})
	}
	first := r.serve(true, by("agent.b"), boss)
	task := r.submit(`{"text":"go"}`, `{"handoff":false}`)
	until(t, "the receiver works", func() bool { return c.all()["agent.b"] == 1 })
	first.kill()
	r.serve(true, by("agent.c"), boss)
	result := make(chan answer, 1)
	go func() { result <- r.result(task) }()
	until(t, "the second worker has claimed the run", func() bool {
		cp, err := r.client.Run(t.Context(), task.To, task.ID)
		return err == nil && cp.Mesh.Epoch > 1
	})
	c.open("agent.b")
	if got, n := within(t, "the result", result), c.all(); got.payload != `{"n":1}` || n["agent.b"] != 1 || n["agent.c"] != 0 {
		t.Errorf("asked %v: %+v", n, got)
	}
}
