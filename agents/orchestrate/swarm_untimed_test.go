package orchestrate_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A durable swarm without a deadline has thirty days. A member that never
// answers, and one without a worker, do not use them up.
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
	r.serve(true, teamWith(plan(t, three(`],"consensus":{"strategy":"majority_vote"}`), ""), nil, orchestrate.Options{MemberTime: 3 * time.Second}), boss)
	got := r.result(r.submit(`{"text":"go"}`, ""))
	if got.payload != `{"v":1}` || failures(got.swarm.Failures) != "b E_TIMEOUT,c E_TIMEOUT" {
		t.Errorf("%s, failures %s, %v", got.payload, failures(got.swarm.Failures), got.err)
	}
	within(t, "who never answers is stopped", cancelled)
}
