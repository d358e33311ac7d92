package mesh_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/schema"
	"github.com/aeemesh/aeemesh/mesh"
)

// What the mesh tells on the bus is what the published schemas say, and they
// know every member of it.
func TestEventsFitTheirSchemas(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	events := r.events()
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: echo})
	r.hears(helper)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: reviewer, Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		return nil, envelope.Errorf(envelope.CodeUnavailable, "no luck")
	}), Retry: mesh.RetryPolicy{Max: 1, Base: time.Millisecond}})
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		slot := 0
		task.PublishStep(intents.RunStepStarted, intents.StepEvent{Pattern: "swarm", Step: "swarm/0", Alias: "a", Slot: &slot, To: helper, Child: "the-child", Durable: true, Try: 1})
		task.PublishStep(intents.RunStepFailed, intents.StepEvent{Pattern: "swarm", Alias: "a", DurationMS: 1.5, Error: envelope.Errorf(envelope.CodeBusy, "no room"), Then: intents.ThenRetry, Usage: json.RawMessage(`{"input_tokens":1}`)})
		task.PublishStep(intents.RunWaiting, intents.StepEvent{To: ada, Until: "2027-01-02T03:04:05.000Z", Detail: "for a person"})
		task.PublishStep(intents.RunVoted, intents.StepEvent{Strategy: "majority_vote", Winner: "a", Tied: true, By: "model",
			Votes: []intents.StepVotes{{Count: 2, Aliases: []string{"a", "b"}}}, Scores: []intents.StepScore{{Alias: "a", Score: -1}}})
		return task.Delegate(ctx, mesh.Delegation{To: helper})
	})})
	client := r.client()
	for _, to := range []string{lead, reviewer} {
		task := newTask(to, "x.y.z", `{}`)
		r.submit(client, task)
		if _, err := r.result(client, task); (err != nil) != (to == reviewer) {
			t.Fatalf("%s: %v", to, err)
		}
	}
	stale := newTask(lead, "x.y.z", `{}`)
	stale.TS = "2020-01-01T00:00:00Z"
	r.request(stale)
	seen := map[string]bool{}
	for !seen[intents.TaskFailed] || !seen[intents.TaskRetrying] || !seen[intents.AlertRaised] || !seen[intents.RunVoted] || !seen[intents.AgentJoined] || !seen[intents.TaskFinished] {
		msg := within(t, "the events", events)
		topic := strings.TrimPrefix(msg.Subject, "bus.")
		raw, err := os.ReadFile("../intents/" + topic + ".event.schema.json")
		if err != nil {
			t.Fatal(err)
		}
		e := parse(t, msg.Data)
		s, err := schema.Compile(raw)
		if err != nil {
			t.Fatal(err)
		}
		seen[e.Intent] = true
		if err := s.Validate(e.Payload); err != nil {
			t.Errorf("%s: %s\n%v", e.Intent, e.Payload, err)
		}
		var form struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &form) != nil || json.Unmarshal(e.Payload, &members) != nil {
			t.Fatal(err)
		}
		for name := range members {
			if form.Properties[name] == nil {
				t.Errorf("%s has a member that the schema does not know: %s", e.Intent, name)
			}
		}
	}
}
