package orchestrate_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A durable swarm without a deadline has thirty days. A member that never answers, or has no
// worker, does not use them up.
func TestADurableSwarmDoesNotHangOnItsMembers(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newRig(t)
	cancelled := make(chan error, 1)
	r.serve(true, says(`{"v":1}`), "agent.a")
	r.serve(true, mesh.HandlerFunc(func(ctx context.Context, _ *mesh.Task) (json.RawMessage, error) {
		<-ctx.Done()
		cancelled <- context.Cause(ctx)
		return nil, context.Cause(ctx)
	}), "agent.b")
	r.serve(true, teamWith(plan(t, three(`],"consensus":{"strategy":"majority_vote"}`), extras(`"steps":{"c":{"max_retries":0}}`)), nil, orchestrate.Options{MemberTime: 3 * time.Second}), boss)
	got := r.result(r.submit(`{"text":"go"}`, ""))
	if got.payload != `{"v":1}` || failures(got.swarm.Failures) != "b E_TIMEOUT,c E_TIMEOUT" {
		t.Errorf("%s, failures %s, %v", got.payload, failures(got.swarm.Failures), got.err)
	}
	within(t, "who never answers is stopped", cancelled)
}

// Without a deadline each attempt of a member has its own timeout. After that the member has failed
// like any other: it is retried as its document says, or the fallback is called.
func TestAMemberThatIsLateIsTriedAgainOrReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var tries atomic.Int32
	hangs := func(ctx context.Context) (json.RawMessage, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	r.serve(true, mesh.HandlerFunc(func(ctx context.Context, _ *mesh.Task) (json.RawMessage, error) {
		if tries.Add(1) == 1 {
			return hangs(ctx)
		}
		return json.RawMessage(`{"v":1}`), nil
	}), "agent.a")
	r.serve(true, mesh.HandlerFunc(func(ctx context.Context, _ *mesh.Task) (json.RawMessage, error) { return hangs(ctx) }), "agent.b")
	r.serve(true, says(`{"v":2}`), "agent.f")
	const block = `{"parallel_execution":true,"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"agent.b","alias":"b"},{"ref":"agent.f","alias":"f","role":"fallback"}]}`
	// The retries are for a busy machine, on which an answer may take longer than the timeout of an
	// attempt.
	root := extras(`"steps":{"a":{"max_retries":9,"retry_backoff":"fixed"},"b":{"on_error":"fallback"},"f":{"max_retries":9,"retry_backoff":"fixed"}}`)
	r.serve(true, teamWith(plan(t, block, root), nil, orchestrate.Options{MemberTime: 700 * time.Millisecond, Retries: mesh.RetryPolicy{Base: time.Millisecond}}), boss)
	got := r.result(r.submit(`{"text":"go"}`, ""))
	const want = `{"failures":[],"results":[{"alias":"a","entity":"agent.a","output":{"v":1}},{"alias":"b","entity":"agent.f","output":{"v":2}}]}`
	if got.payload != want || got.err != nil || got.swarm.Failed != 0 {
		t.Errorf("%s, %v, failures %s", got.payload, got.err, failures(got.swarm.Failures))
	}
}

// A durable member that has answered while its swarm was to pause, and a live member held that up, has not
// failed: its time stood still, and the swarm reads its answer when it is resumed.
func TestAPauseIsNotTheTimeOfItsMembers(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newRig(t)
	c := newTally("agent.a", "agent.b")
	r.serve(true, c, "agent.a")
	r.serve(false, c, "agent.b")
	const block = `{"parallel_execution":true,"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"agent.b","alias":"b"}]}`
	root := extras(`"steps":{"b":{"timeout_seconds":6,"max_retries":0}}`)
	r.serve(true, teamWith(plan(t, block, root), nil, orchestrate.Options{MemberTime: 4 * time.Second}), boss)
	task := r.submit(`{"text":"go"}`, "")
	until(t, "both work", func() bool { return len(c.all()) == 2 })
	if _, err := r.client.Command(r.ctx(), boss, intents.PauseTask{Target: intents.Target{ID: task.ID, Durable: true}}); err != nil {
		t.Fatal(err)
	}
	c.open("agent.a")
	until(t, "it is paused", func() bool { return r.checkpoint(task).Doc.Status == aaif.RunPaused })
	if _, err := r.client.Command(r.ctx(), boss, intents.ResumeTask{Target: intents.Target{ID: task.ID, Durable: true}}); err != nil {
		t.Fatal(err)
	}
	got := r.result(task)
	if !strings.Contains(got.payload, `"results":[{"alias":"a","entity":"agent.a","output":{"n":0}}]`) || got.swarm.Failed != 1 || c.all()["agent.a"] != 1 {
		t.Errorf("%s, %v, asked %v", got.payload, got.err, c.all())
	}
}
