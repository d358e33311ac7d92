package sdsi_test

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// changing is an agent whose desk can be replaced.
type changing struct {
	desk atomic.Pointer[mesh.Agent]
}

// serveChanging serves an agent whose desk can be replaced, as by a rollout.
func (r *rig) serveChanging(h mesh.HandlerFunc, desk *sdsi.Desk) *changing {
	r.Helper()
	c := &changing{}
	c.use(r, desk, h)
	agent := *c.desk.Load()
	agent.Handler = mesh.HandlerFunc(func(ctx context.Context, t *mesh.Task) (json.RawMessage, error) {
		return c.desk.Load().Handler.Handle(ctx, t)
	})
	ready := make(chan struct{})
	agent.Ready = func() { close(ready) }
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.node(trams).Serve(ctx, agent) }()
	r.Cleanup(func() { stop(); natstest.Within(r.TB, "the end", done) })
	natstest.Within(r.TB, "the agent", ready)
	return c
}

func (c *changing) use(r *rig, desk *sdsi.Desk, h mesh.HandlerFunc) {
	r.Helper()
	agent := &mesh.Agent{Entity: trams, Handler: h}
	if err := desk.Attach(agent); err != nil {
		r.Fatal(err)
	}
	c.desk.Store(agent)
}

// An exchange succeeds although the agent has replaced the payload's version: it is repeated once,
// if the keys mean the same or the caller fills in again. What the client refuses stays refused, and
// values that are sent again keep their words.
func TestAnExchangeRenewsItsTemplate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		payload string
		refill  func(context.Context, *template.Template) (template.Payload, error)
		want    string // in the result; "": E_NOT_FOUND
		words   string // of stop_from, in the payload that the agent gets
	}{
		"keys that mean the same": {`{"stop_from":"Harbour"}`, nil, `"stop_from":"Harbour"`, "from the harbour"},
		"a key that has changed":  {`{"stop_from":"Harbour","zone_count":2}`, nil, ``, ``},
		"the caller fills in": {`{"stop_from":"Harbour","zone_count":2}`, func(_ context.Context, now *template.Template) (template.Payload, error) {
			return template.Payload{SchemaID: now.SchemaID, Payload: json.RawMessage(`{"stop_from":"Museum"}`)}, nil
		}, `"stop_from":"Museum"`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			agent := r.serveChanging(sells, r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1")))
			client := sdsi.NewClient(r.client)
			if _, err := client.Template(t.Context(), trams, "tram_ticket", ""); err != nil {
				t.Fatal(err)
			}
			next := tram(t, "tram_v2")
			next.Key("zone_count").Description = "How many zones beyond the first."
			received := make(chan json.RawMessage, 1)
			agent.use(r, r.desk(sdsi.DeskConfig{}, next), func(ctx context.Context, t *mesh.Task) (json.RawMessage, error) {
				received <- t.Envelope.Payload
				return sells(ctx, t)
			})
			first := template.Payload{SchemaID: "tram_v1", Payload: json.RawMessage(c.payload), Fragments: map[string]string{"stop_from": "from the harbour"}, NoUpdates: true}
			out, err := client.Exchange(t.Context(), trams, first, sdsi.ExchangeOptions{Refill: c.refill})
			switch {
			case c.want == "" && code(err) != envelope.CodeNotFound:
				t.Errorf("%v", err)
			case c.want == "":
			case err != nil:
				t.Error(err)
			default:
				contains(t, "the result", string(out.Envelope.Payload), c.want)
				raw := natstest.Within(t, "the payload", received)
				if got, err := template.ParsePayload(raw); err != nil || !got.NoUpdates || got.Fragments["stop_from"] != c.words {
					t.Errorf("the agent gets %s, %v", raw, err)
				}
			}
		})
	}
}

// An E_NOT_FOUND of the application does not concern the template: nothing is sent twice.
func TestAnAgentsOwnNotFoundIsNotRepeated(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	var done atomic.Int32
	unknown := func(context.Context, *mesh.Task) (json.RawMessage, error) {
		done.Add(1)
		return nil, envelope.Errorf(envelope.CodeNotFound, "no such stop")
	}
	agent := r.serveChanging(unknown, r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1")))
	client := sdsi.NewClient(r.client)
	if _, err := client.Template(t.Context(), trams, "tram_ticket", ""); err != nil {
		t.Fatal(err)
	}
	agent.use(r, r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1"), tram(t, "tram_v2")), unknown)
	if _, err := client.Exchange(t.Context(), trams, template.Payload{SchemaID: "tram_v1", Payload: json.RawMessage(`{"stop_from":"x"}`)}, sdsi.ExchangeOptions{}); code(err) != envelope.CodeNotFound {
		t.Error(err)
	}
	if done.Load() != 1 {
		t.Errorf("the handler was called %d times", done.Load())
	}
}

// answers serves an agent that answers sdsi.schema.get with a payload of its own.
func (r *rig) answers(payload func() string) {
	r.Helper()
	r.serveAs(trams, func(context.Context, *mesh.Task) (json.RawMessage, error) { return json.RawMessage(payload()), nil })
}

func patched(t testing.TB, patches ...template.Patch) string {
	t.Helper()
	raw, err := json.Marshal(template.GetResult{Template: *tram(t, "tram_v1"), Patches: patches, Hash: "sha256:1"})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func patch(id, parent, key string, expires time.Time) template.Patch {
	return template.Patch{PatchID: id, ParentSchemaID: parent, Timestamp: time.Now().Add(-time.Hour), Expires: expires,
		NewKeys: []template.Key{{Name: key, Type: template.String, Description: "On trial.", Experimental: true}}}
}

// One patch that does not apply, or has expired, does not make a template useless.
func TestPatchesThatDoNotApplyAreLeftOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	later := time.Now().Add(time.Hour)
	answer := patched(t, patch("p1", "tram_v1", "seat", later), patch("p2", "tram_v0", "dog", later), patch("p3", "tram_v1", "zone_count", later),
		patch("p4", "tram_v1", "late", time.Now().Add(-time.Minute)), patch("p5", "tram_v1", "pram", later))
	r.answers(func() string { return answer })
	got, err := sdsi.NewClient(r.client).Template(t.Context(), trams, "tram_ticket", "")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{"seat": true, "dog": false, "late": false, "pram": true, "zone_count": true} {
		if (got.Key(key) != nil) != want {
			t.Errorf("key %s: %v", key, got.Key(key))
		}
	}
}

// Applying patches to a template takes time, which a team would spend at each step.
func TestATemplateIsPutTogetherOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	answer := patched(t, patch("p1", "tram_v1", "seat", time.Now().Add(time.Hour)), patch("p2", "tram_v1", "late", time.Now().Add(3*time.Second)))
	r.answers(func() string { return answer })
	client := sdsi.NewClient(r.client)
	get := func() *template.Template {
		t.Helper()
		got, err := client.Template(t.Context(), trams, "tram_ticket", "")
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := get()
	if second := get(); second != first || first.Key("late") == nil {
		t.Errorf("it was put together again, or without a patch: %+v", first)
	}
	natstest.Eventually(t, "the patch has expired", func() bool { return get().Key("late") == nil })
	if get().Key("seat") == nil {
		t.Error("another patch has gone, too")
	}
}

// Many goroutines request and forget templates; run with -race.
func TestAClientServesMany(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	answer := patched(t)
	r.answers(func() string { return answer })
	client := sdsi.NewClient(r.client)
	var users, events sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	events.Go(func() {
		for ctx.Err() == nil {
			client.Forget(trams)
		}
	})
	for range 2 {
		users.Go(func() {
			for range 50 {
				if _, err := client.Template(t.Context(), trams, "tram_ticket", ""); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	users.Wait()
	stop()
	events.Wait()
}

const helper = "agent.helper"

// serveAs runs an agent that says it has the trams' scenario.
func (r *rig) serveAs(entity string, h mesh.HandlerFunc) {
	r.Helper()
	ready := make(chan struct{})
	agent := mesh.Agent{Entity: entity, Scenarios: []string{"tram_ticket"}, Handler: h, Concurrency: 4, Ready: func() { close(ready) }}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	node := r.node(entity)
	go func() { done <- node.Serve(ctx, agent) }()
	r.Cleanup(func() { stop(); natstest.Within(r.TB, "the end", done) })
	natstest.Within(r.TB, "the agent", ready)
}

// An agent that gets a delegated exchange does not know the template: the client validates the
// result against the response schema.
func TestADelegatedResultIsHeldToTheResponseSchema(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.serve(r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1")), func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		return task.Delegate(ctx, mesh.Delegation{To: helper})
	}, nil)
	var result atomic.Value
	r.serveAs(helper, func(context.Context, *mesh.Task) (json.RawMessage, error) {
		return json.RawMessage(result.Load().(string)), nil
	})
	c := sdsi.NewClient(r.client)
	if _, err := c.Template(t.Context(), trams, "tram_ticket", ""); err != nil {
		t.Fatal(err)
	}
	for answer, want := range map[string]envelope.Code{`{"ticket":"T-1"}`: "", `{"ticket":1}`: envelope.CodeOutputSchema} {
		result.Store(answer)
		got, err := c.Exchange(t.Context(), trams, template.Payload{SchemaID: "tram_v1", Payload: json.RawMessage(`{"stop_from":"Harbour"}`)}, sdsi.ExchangeOptions{})
		if code(err) != want {
			t.Errorf("%s: %+v, %v", answer, got, err)
		}
	}
}

// Only the agent itself can publish its templates, not an agent to which it delegates.
func TestATemplateOfAnotherAgentIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	answer := patched(t)
	r.serveAs(helper, func(context.Context, *mesh.Task) (json.RawMessage, error) { return json.RawMessage(answer), nil })
	r.serveAs(trams, func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		return task.Delegate(ctx, mesh.Delegation{To: helper})
	})
	if got, err := sdsi.NewClient(r.client).Template(t.Context(), trams, "tram_ticket", ""); code(err) != envelope.CodeInvalidEnvelope {
		t.Errorf("%v, %v", got, err)
	}
}

// The answer to a request for a version must be that version, or an error.
func TestAnotherVersionThanWasAskedForIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	answer := patched(t)
	r.answers(func() string { return answer })
	client := sdsi.NewClient(r.client)
	for id, taken := range map[string]bool{"": true, "tram_v1": true, "tram_v2": false} {
		if got, _, err := client.Get(t.Context(), trams, template.GetTask{SchemaID: id}); (err == nil) != taken {
			t.Errorf("%q: %+v, %v", id, got, err)
		}
	}
}

// A suggestion must come from the agent itself and belong to the payload's template: suggestions of
// an agent to which it has delegated, and for another template, are ignored.
func TestASuggestionIsTheAgentsOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by, parent string
		taken      bool
	}{
		"the agent's":          {trams, "tram_v1", true},
		"for another template": {trams, "tram_v0", false},
		"of another agent":     {helper, "tram_v1", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			raw, err := json.Marshal(patch("p1", c.parent, "seat", time.Now().Add(time.Hour)))
			if err != nil {
				t.Fatal(err)
			}
			answers := func(context.Context, *mesh.Task) (json.RawMessage, error) {
				return json.RawMessage(`{"ticket":"T-1","` + template.SuggestionMember + `":` + string(raw) + `}`), nil
			}
			if c.by == trams {
				r.serveAs(trams, answers)
			} else {
				r.serveAs(helper, answers)
				r.serveAs(trams, func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
					return task.Delegate(ctx, mesh.Delegation{To: helper})
				})
			}
			got, err := sdsi.NewClient(r.client).Exchange(t.Context(), trams, template.Payload{SchemaID: "tram_v1", Payload: json.RawMessage(`{"stop_from":"Harbour"}`)}, sdsi.ExchangeOptions{})
			if err != nil || (got.Suggestion != nil) != c.taken {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
