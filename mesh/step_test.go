package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// tells is an agent that tells of the steps, and then fails or not.
func tells(steps map[string]intents.StepEvent, order ...string) mesh.Handler {
	return mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		for _, intent := range order {
			task.PublishStep(intent, steps[intent])
		}
		return json.RawMessage(`{}`), nil
	})
}

// An event with a number or a usage that JSON does not have is left out; the handler goes on.
func TestAStepThatIsNoJSONIsNotPublished(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	events := r.listen("bus.mesh.run")
	steps := map[string]intents.StepEvent{
		intents.RunStepFinished: {DurationMS: math.NaN()},
		intents.RunMerged:       {Usage: json.RawMessage("none")},
		intents.RunVoted:        {},
	}
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: tells(steps, intents.RunStepFinished, intents.RunMerged, intents.RunVoted)})
	equal(t, "type", r.request(newTask(reviewer, "code.review", `{}`)).Type, envelope.TypeResult)
	equal(t, "event", parse(t, within(t, "an event", events).Data).Intent, intents.RunVoted)
}

func TestStepsAreToldOnTheBusWithoutWhatIsBetweenPeers(t *testing.T) {
	t.Parallel()
	slot := 0
	problem := envelope.Errorf("E_MINE", "no luck")
	problem.Details = []envelope.Member{{Name: "secret", Value: json.RawMessage(`1`)}}
	steps := map[string]intents.StepEvent{
		intents.RunStepStarted: {Task: "forged", Pattern: "pipeline", Step: "step/lint", Alias: "lint", Slot: &slot, To: "agent.lint", Child: "c1", Durable: true, Try: 1},
		intents.RunStepFailed:  {Step: "step/lint", To: "agent.lint", Child: "c1", DurationMS: 1.5, Error: problem, Then: intents.ThenRetry},
	}
	for _, level := range []mesh.TaskEvents{mesh.EventsAll, mesh.EventsFailures} {
		r := newRig(t)
		events := r.listen("bus.mesh.run")
		presence := r.listen("bus.mesh.agent")
		r.serve(r.node(mesh.Config{TaskEvents: level}), mesh.Agent{Handler: tells(steps, intents.RunStepStarted, intents.RunStepFailed)})
		instance := presenceOf(t, parse(t, within(t, "joined", presence).Data)).Instance
		task := newTask(reviewer, "code.review", `{}`)
		task.Trace = json.RawMessage(`{"trace_id":"9f3c","span_id":"b77c"}`)
		r.request(task)
		event := func(intent, payload string) *envelope.Envelope {
			return &envelope.Envelope{V: "1", ID: task.ID, TS: task.TS, Type: envelope.TypeEvent, From: reviewer, To: "bus.mesh.run", Intent: intent,
				Corr: task.Corr, Trace: task.Trace, Priority: envelope.PriorityNormal, Payload: json.RawMessage(payload)}
		}
		want := []*envelope.Envelope{
			event(intents.RunStepStarted, fmt.Sprintf(`{"task":%q,"instance":%q,"pattern":"pipeline","step":"step/lint","alias":"lint","slot":0,"to":"agent.lint","child":"c1","durable":true,"try":1}`, task.ID, instance)),
			event(intents.RunStepFailed, fmt.Sprintf(`{"task":%q,"instance":%q,"step":"step/lint","to":"agent.lint","child":"c1","duration_ms":1.5,"error":{"code":"E_MINE","message":"no luck","retryable":false},"then":"retry"}`, task.ID, instance)),
		}
		if level == mesh.EventsFailures {
			want = want[1:]
		}
		for _, w := range want {
			same(t, parse(t, within(t, "an event", events).Data), w)
		}
		settle(t, r.nc)
		empty(t, "more events", events)
	}
}

func TestStepEventsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	events := r.listen("bus.mesh.run")
	step := intents.StepEvent{Alias: strings.Repeat("ä", 1000), Detail: strings.Repeat("d", 5000), Usage: json.RawMessage(`"` + strings.Repeat("u", 5000) + `"`)}
	for i := range 300 {
		step.Votes = append(step.Votes, intents.StepVotes{Count: i, Aliases: []string{"a", "b", "c"}})
		step.Scores = append(step.Scores, intents.StepScore{Alias: strings.Repeat("s", 1000), Score: 1})
	}
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: tells(map[string]intents.StepEvent{intents.RunVoted: step}, intents.RunVoted)})
	r.request(newTask(reviewer, "code.review", `{}`))
	e := parse(t, within(t, "the event", events).Data)
	var got intents.StepEvent
	if err := json.Unmarshal(e.Payload, &got); err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, v := range got.Votes {
		named += len(v.Aliases)
	}
	equal(t, "choices, aliases, scores", [3]int{len(got.Votes), named, len(got.Scores)}, [3]int{intents.MaxVoters, intents.MaxVoters, intents.MaxVoters})
	equal(t, "lengths", [3]bool{len(got.Alias) < 300, len(got.Detail) < 1100, got.Usage == nil}, [3]bool{true, true, true})
	if len(e.Payload) > 64<<10 {
		t.Errorf("the event has %d bytes", len(e.Payload))
	}
	equal(t, "what the caller keeps", len(step.Votes), 300)
}

func TestTaskEventsNameTheTaskAbove(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	events := r.listen("bus.mesh.task")
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: tells(nil)})
	task := newTask(reviewer, "code.review", `{}`)
	task.ReplyTo = "01JFB2R1JZKQ9V3K8W8Y9W1F2A"
	r.request(task)
	for _, intent := range []string{intents.TaskStarted, intents.TaskFinished} {
		e := parse(t, within(t, intent, events).Data)
		var got struct{ Parent string }
		if err := json.Unmarshal(e.Payload, &got); err != nil || e.Intent != intent || got.Parent != task.ReplyTo {
			t.Errorf("%s: parent %q, %v: %s", e.Intent, got.Parent, err, e.Payload)
		}
	}
}
