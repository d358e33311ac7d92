package agents_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
)

func TestSchemasAreEnforcedBothWays(t *testing.T) {
	t.Parallel()
	const io = `"io": {
		"input_schema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}},
		"output_schema": {"type": "object", "required": ["sum"], "properties": {"sum": {"type": "integer"}}, "additionalProperties": false}}`
	use := model.Usage{InputTokens: 5, OutputTokens: 2}
	for name, c := range map[string]struct {
		payload string
		turns   []modeltest.Turn
		want    string
		code    envelope.Code
		asked   int
	}{
		"fits, and has no room for usage": {`{"n":1}`, []modeltest.Turn{{Text: `{"sum": 2}`, Usage: use}}, `{"sum":2}`, "", 1},
		"in a fence":                      {`{"n":1}`, []modeltest.Turn{says("```json\n{\"sum\": 2}\n```")}, `{"sum":2}`, "", 1},
		"repaired":                        {`{"n":1}`, []modeltest.Turn{says(`{"sum":"two"}`), says(`{"sum":2}`)}, `{"sum":2}`, "", 2},
		"words, repaired":                 {`{"n":1}`, []modeltest.Turn{says(`two`), says(`{"sum":2}`)}, `{"sum":2}`, "", 2},
		"repaired in vain":                {`{"n":1}`, []modeltest.Turn{says(`{"sum":"two"}`), says(`{"sum":"2"}`), says(`{"sum":2}`)}, "", envelope.CodeOutputSchema, 2},
		"no object":                       {`{"n":1}`, []modeltest.Turn{says(`[2]`), says(`2`)}, "", envelope.CodeOutputSchema, 2},
		"a name twice":                    {`{"n":1}`, []modeltest.Turn{says(`{"sum":1,"sum":2}`), says(`{"sum":1,"sum":2}`)}, "", envelope.CodeOutputSchema, 2},
		"input does not fit":              {`{"n":"one"}`, []modeltest.Turn{says(`{"sum":2}`)}, "", envelope.CodeInputSchema, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, entity, fake := hostFake(t, io, agents.Options{}, c.turns...)
			got := w.send(entity, c.payload, sending{})
			var code envelope.Code
			if got.err != nil {
				code = got.err.Code
			}
			if got.payload != c.want || code != c.code {
				t.Errorf("got %+v, want %s %s", got, c.want, c.code)
			}
			requests := fake.Requests()
			if len(requests) != c.asked {
				t.Fatalf("%d turns, want %d", len(requests), c.asked)
			}
			for _, r := range requests {
				if r.Format.Type != model.FormatJSON || !strings.Contains(r.Messages[0].Content, `"sum"`) {
					t.Errorf("the model was not asked for what fits: %+v", r)
				}
			}
		})
	}
}

func TestJSONSchemaFormatIsAskedOfTheProvider(t *testing.T) {
	t.Parallel()
	w, entity, fake := hostFake(t, `"model": {"provider": "openai", "preferred": "m", "response_format": "json_schema"}, "io": {"output_schema": {"type": "object", "required": ["a"]}}`,
		agents.Options{}, says(`{"a":1}`))
	if got := w.send(entity, `{"text":"go"}`, sending{}); got.payload != `{"a":1}` {
		t.Errorf("got %+v", got)
	}
	if f := fake.Requests()[0].Format; f.Type != model.FormatJSONSchema || string(compact(t, f.Schema)) != `{"required":["a"],"type":"object"}` {
		t.Errorf("format %+v", f)
	}
}

// What io.format says of answers holds where the model's response_format says
// nothing.
func TestFormatOfAnswersMayStandInIO(t *testing.T) {
	t.Parallel()
	for io, want := range map[string]model.FormatType{
		`"format": "json"`: model.FormatJSON,
		`"format": "structured", "output_schema": {"type": "object", "required": ["a"]}`: model.FormatJSONSchema,
	} {
		w, entity, fake := hostFake(t, `"model": {"provider": "openai", "preferred": "m"}, "io": {`+io+`}`, agents.Options{}, says("```json\n{\"a\": 1}\n```"))
		if got := w.send(entity, `{"text":"go"}`, sending{}); got.payload != `{"a":1}` {
			t.Errorf("%s: got %+v", io, got)
		}
		if f := fake.Requests()[0].Format; f.Type != want {
			t.Errorf("%s: asked for %v", io, f.Type)
		}
	}
	w, entity, fake := hostFake(t, `"model": {"provider": "openai", "preferred": "m"}, "io": {"format": "markdown"}`, agents.Options{}, says("# A"))
	if got := w.send(entity, `{"text":"go"}`, sending{}); got.payload != `{"text":"# A"}` {
		t.Errorf("markdown: got %+v", got)
	}
	if system := fake.Requests()[0].Messages[0].Content; !strings.Contains(system, "Markdown") {
		t.Errorf("markdown: the model was told %q", system)
	}
	w, entity, fake = hostFake(t, `"model": {"provider": "openai", "preferred": "m", "response_format": "text"}, "io": {"format": "json"}`, agents.Options{}, says("plain"))
	if got := w.send(entity, `{"text":"go"}`, sending{}); got.payload != `{"text":"plain"}` || fake.Requests()[0].Format.Type == model.FormatJSON {
		t.Errorf("response_format wins: got %+v", got)
	}
}

func TestDecisionEvidence(t *testing.T) {
	t.Parallel()
	const account = `{"decision":"ship it","reason_summary":"all is well","action_taken":"linted","confidence":0.8,"tools_used":["made up"]}`
	for name, c := range map[string]struct {
		agent    string
		requires string
		turns    []modeltest.Turn
		want     string
		code     envelope.Code
	}{
		"the model accounts for itself, the runtime for the facts": {lintTool, `{"decision_evidence":"standard"}`,
			[]modeltest.Turn{calls(call("1", "lint", `{}`)), says("fine"), says(account)},
			`{"text":"fine","decision_evidence":{"inputs_used":["payload.a","payload.b"],"tools_used":["lint"],"decision":"ship it","reason_summary":"all is well","action_taken":"linted","confidence":0.8}}`, ""},
		"minimal": {lintTool, `{"decision_evidence":"minimal"}`, []modeltest.Turn{says("fine"), says(account)},
			`{"text":"fine","decision_evidence":{"decision":"ship it","reason_summary":"all is well"}}`, ""},
		"a model that cannot is described": {lintTool, `{"decision_evidence":"standard"}`, []modeltest.Turn{says("fine")},
			`{"text":"fine","decision_evidence":{"inputs_used":["payload.a","payload.b"],"tools_used":[],"decision":"fine","reason_summary":"The model answered without calling a tool. It gave no reasons of its own.","action_taken":"Answered; no tool was called.","confidence":0}}`, ""},
		"in the answer itself": {`"model": {"provider": "openai", "preferred": "m", "response_format": "json"}`, `{"decision_evidence":"minimal"}`,
			[]modeltest.Turn{says(`{"x":1,"decision_evidence":` + account + `,"y":2}`)},
			`{"x":1,"y":2,"decision_evidence":{"decision":"ship it","reason_summary":"all is well"}}`, ""},
		"no room": {`"io": {"output_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": false}}`, `{"decision_evidence":"minimal"}`,
			[]modeltest.Turn{says("fine")}, "", envelope.CodeRequires},
		"not confident enough": {lintTool, `{"min_confidence":0.9}`, []modeltest.Turn{says("fine"), says(account)}, "", envelope.CodeRequires},
		"confident enough":     {lintTool, `{"min_confidence":0.7}`, []modeltest.Turn{says("fine"), says(account)}, `{"text":"fine"}`, ""},
		"none":                 {lintTool, `{"decision_evidence":"none"}`, []modeltest.Turn{says("fine")}, `{"text":"fine"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, entity, _ := hostFake(t, c.agent, agents.Options{Tools: registry(t, "lint")}, c.turns...)
			got := w.send(entity, `{"a":1,"b":2,"usage":{}}`, sending{requires: c.requires})
			var code envelope.Code
			if got.err != nil {
				code = got.err.Code
			}
			if got.payload != c.want || code != c.code {
				t.Errorf("got  %+v\nwant %s %s", got, c.want, c.code)
			}
		})
	}

	w, entity, _ := hostFake(t, lintTool, agents.Options{Tools: registry(t, "lint")}, says("fine"))
	got := w.send(entity, `{"text":"x","references":[{"id":"01REFERENCED","type":"aee.envelope"}]}`, sending{requires: `{"decision_evidence":"full"}`})
	var result struct {
		Evidence intents.DecisionEvidence `json:"decision_evidence"`
	}
	if err := json.Unmarshal([]byte(got.payload), &result); err != nil || len(result.Evidence.ContextRefs) != 2 || result.Evidence.ContextRefs[1] != "01REFERENCED" {
		t.Errorf("full: got %+v", got)
	}
}
