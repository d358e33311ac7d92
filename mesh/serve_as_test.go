package mesh_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// classifying is an agent that answers "app.menu" beside the queue and takes payloads with
// a member "wrapped" as "app.wrapped".
func classifying(handler mesh.Handler) mesh.Agent {
	return mesh.Agent{Handler: handler, Scenarios: []string{"lunch"}, Classify: func(e *envelope.Envelope) (string, bool) {
		if strings.Contains(string(e.Payload), `"wrapped"`) {
			return "app.wrapped", false
		}
		return e.Intent, e.Intent == "app.menu"
	}}
}

func TestATaskIsAnsweredBesideTheQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	handler := mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if task.Intent() == "app.menu" {
			return json.RawMessage(`{"menu":"soup"}`), nil
		}
		return g.Handle(ctx, task)
	})
	agent := classifying(handler)
	agent.Queue = -1
	r.serve(r.node(mesh.Config{}), agent)
	t.Cleanup(g.open)
	r.send(newTask(reviewer, "app.eat", `{}`))
	within(t, "the first task", g.entered)
	equal(t, "a busy agent", r.code("app.eat", `{}`), envelope.CodeBusy)
	equal(t, "its menu", r.result("app.menu", `{}`), `{"menu":"soup"}`)
	equal(t, "capabilities", r.result(intents.CapabilityList, `{"namespace_filter":"code"}`), `{"intents":[],"scenarios":["lunch"]}`)
	if got := r.result(intents.SpecQuery, `{}`); !strings.Contains(got, intents.ExtSDSI) {
		t.Errorf("the extensions do not name SDSI: %s", got)
	}
}

func TestAHandlerServesATaskAsAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	reg := intents.NewRegistry()
	if err := reg.Register(
		intents.Definition{Intent: "app.wrapped", Task: json.RawMessage(`{"required":["wrapped"]}`)},
		intents.Definition{Intent: "app.strict", Task: json.RawMessage(`{"required":["x"]}`), Result: json.RawMessage(`{"required":["y"]}`)},
	); err != nil {
		t.Fatal(err)
	}
	agent := classifying(mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		before := task.Intent()
		task.ServeAs("app.inner", json.RawMessage(`{"in":1}`))
		return json.Marshal(map[string]any{"before": before, "after": task.Intent(), "input": task.Input()})
	}))
	agent.Intents = reg
	r.serve(r.node(mesh.Config{}), agent)
	// The task's own intent, with its schemas, is not that as which the agent takes it.
	equal(t, "wrapped", r.result("app.strict", `{"wrapped":{}}`), `{"after":"app.inner","before":"app.wrapped","input":{"in":1}}`)
	equal(t, "not wrapped", r.code("app.strict", `{}`), envelope.CodeInputSchema)
}

// A stopping agent waits for tasks that it handles beside the queue as long as for others,
// whether or not their handler ends with its context.
func TestDrainGivesUpATaskBesideTheQueueAfterItsTime(t *testing.T) {
	t.Parallel()
	for name, stubborn := range map[string]bool{"a willing handler": false, "a stubborn one": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			g := newGate(t)
			stopped := make(chan error, 1)
			w := r.serve(r.node(mesh.Config{Drain: 20 * time.Millisecond}), classifying(mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				g.entered <- task
				<-ctx.Done()
				stopped <- context.Cause(ctx)
				if stubborn {
					<-g.release
				}
				return nil, ctx.Err()
			})))
			t.Cleanup(g.open)
			answers := r.send(requiring(newTask(reviewer, "app.menu", `{}`), `{"timeout_ms":600000}`))
			within(t, "the task", g.entered)
			w.stop()
			equal(t, "the answer", errorOf(t, parse(t, within(t, "an answer", answers).Data)).Code, envelope.CodeUnavailable)
			if err := within(t, "Serve", w.done); err == nil || !strings.Contains(err.Error(), "after 20ms there were tasks under way still (1)") {
				t.Errorf("Serve: %v", err)
			}
			equal(t, "what the handler hears", codeOf(within(t, "the handler", stopped)), envelope.CodeUnavailable)
		})
	}
}

func TestDrainWaitsForTasksBesideTheQueue(t *testing.T) {
	t.Parallel()
	const tasks = 8 // more than are handled at once
	r := newRig(t)
	g := newGate(t)
	w := r.serve(r.node(mesh.Config{Drain: patience}), classifying(willing{g}))
	answers := make([]chan *nats.Msg, tasks)
	for i := range answers {
		answers[i] = r.send(newTask(reviewer, "app.menu", `{}`))
	}
	within(t, "the first task", g.entered)
	w.stop()
	g.open()
	for _, c := range answers {
		if e := parse(t, within(t, "an answer", c).Data); e.Type != envelope.TypeResult && errorOf(t, e).Code != envelope.CodeDraining {
			t.Errorf("got %s", e.Payload)
		}
	}
	if err := within(t, "Serve", w.done); err != nil {
		t.Errorf("Serve: %v", err)
	}
}
