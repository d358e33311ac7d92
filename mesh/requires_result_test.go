package mesh_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Gap 17 of the traceability review: what a task asks of its result is kept or refused,
// on both lanes.
func TestWhatIsAskedOfAResultIsKeptOrRefused(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	const (
		text   = `{"text":"hello","usage":{"input_tokens":1}}`
		object = `{"n":1}`
		both   = `{"text":"hello","n":1}`
		proven = `{"text":"hello","evidence_refs":["log:1"]}`
	)
	closed := func(result string) mesh.Agent {
		r := intents.NewRegistry()
		if err := r.Register(intents.Definition{Intent: "code.review", Result: json.RawMessage(result)}); err != nil {
			t.Fatal(err)
		}
		return mesh.Agent{Intents: r}
	}
	refused, late := envelope.CodeRequires, envelope.CodeOutputSchema
	for name, c := range map[string]struct {
		agent    mesh.Agent
		requires string
		result   string
		want     envelope.Code // "": a result
		worked   bool          // the handler was called
	}{
		"text":                      {mesh.Agent{}, `{"format":"text"}`, text, "", true},
		"text, with more":           {mesh.Agent{}, `{"format":"text"}`, both, "", true},
		"text that is none":         {mesh.Agent{}, `{"format":"text"}`, object, late, true},
		"json":                      {mesh.Agent{}, `{"format":"json"}`, object, "", true},
		"json, with a text":         {mesh.Agent{}, `{"format":"json"}`, both, "", true},
		"json that is a text":       {mesh.Agent{}, `{"format":"json"}`, text, late, true},
		"markdown by default":       {mesh.Agent{}, `{"format":"markdown"}`, text, refused, false},
		"markdown":                  {mesh.Agent{Formats: []string{mesh.FormatMarkdown}}, `{"format":"markdown"}`, text, "", true},
		"markdown that is none":     {mesh.Agent{Formats: []string{mesh.FormatMarkdown}}, `{"format":"markdown"}`, object, late, true},
		"not this agent's":          {mesh.Agent{Formats: []string{mesh.FormatJSON}}, `{"format":"text"}`, text, refused, false},
		"unknown":                   {mesh.Agent{}, `{"format":"application/pdf"}`, text, refused, false},
		"none at all":               {mesh.Agent{Formats: []string{}}, `{"format":"json"}`, object, refused, false},
		"empty":                     {mesh.Agent{}, `{"format":""}`, object, "", true},
		"text, and a schema":        {closed(`{"required":["n"]}`), `{"format":"text"}`, both, refused, false},
		"json, and a schema":        {closed(`{"required":["n"]}`), `{"format":"json"}`, object, "", true},
		"evidence":                  {mesh.Agent{}, `{"evidence":true}`, proven, "", true},
		"no evidence":               {mesh.Agent{}, `{"evidence":true}`, text, late, true},
		"evidence that is none":     {mesh.Agent{}, `{"evidence":true}`, `{"evidence_refs":[]}`, late, true},
		"evidence of nothing":       {mesh.Agent{}, `{"evidence":true}`, `{"evidence_refs":[""]}`, late, true},
		"evidence in another shape": {mesh.Agent{}, `{"evidence":true}`, `{"evidence_refs":"log:1"}`, late, true},
		"evidence not wanted":       {mesh.Agent{}, `{"evidence":false}`, text, "", true},
		"no room for evidence":      {closed(`{"properties":{"n":{}},"additionalProperties":false}`), `{"evidence":true}`, object, refused, false},
		"room for evidence":         {closed(`{"properties":{"n":{},"evidence_refs":{}},"additionalProperties":false}`), `{"evidence":true}`, `{"n":1,"evidence_refs":["log:1"]}`, "", true},
		"no room for an account":    {closed(`{"properties":{"n":{}},"additionalProperties":false}`), `{"decision_evidence":"minimal"}`, object, refused, false},
		"no account":                {mesh.Agent{}, `{"decision_evidence":"minimal"}`, object, late, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			var calls atomic.Int32
			c.agent.Handler = mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
				calls.Add(1)
				if !strings.Contains(string(task.Envelope.Requires), task.Requires.Format) {
					t.Errorf("the handler is told %q", task.Requires.Format)
				}
				return json.RawMessage(c.result), nil
			})
			r.serve(r.lane(mesh.Config{}), c.agent)
			client := r.client()
			live := requiring(newTask(reviewer, "code.review", `{}`), c.requires)
			_, err := client.Send(ctxFor(t), live, mesh.SendOptions{})
			equal(t, "live", codeOf(err), c.want)
			durable := requiring(newTask(reviewer, "code.review", `{}`), c.requires)
			r.submit(client, durable)
			_, err = r.result(client, durable)
			equal(t, "durable", codeOf(err), c.want)
			if got := calls.Load() == 2; got != c.worked || !got && calls.Load() > 0 {
				t.Errorf("the handler was called %d times", calls.Load())
			}
		})
	}
}

// The reserved intents' results are the specification's.
func TestReservedIntentsGiveNoEvidence(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo})
	for requires, want := range map[string]envelope.Code{
		`{"evidence":true}`: envelope.CodeRequires, `{"format":"text"}`: envelope.CodeRequires, `{"decision_evidence":"full"}`: envelope.CodeRequires,
		`{"format":"json"}`: "", `{"evidence":false}`: "",
	} {
		got := r.request(requiring(newTask(reviewer, intents.StatusPing, `{}`), requires))
		if want == "" {
			equal(t, requires, got.Type, envelope.TypeResult)
		} else {
			equal(t, requires, errorOf(t, got).Code, want)
		}
	}
}
