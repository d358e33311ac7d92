package payloads_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/payloads"
)

// agent has one intent, whose payloads have a member n of their own and no other.
func agent(t *testing.T) *payloads.Agent {
	t.Helper()
	closed := json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`)
	r := intents.NewRegistry()
	if err := r.Register(intents.Definition{Intent: "code.review", Task: closed, Result: closed, Error: json.RawMessage(`{"properties":{"code":{"enum":["E_MINE"]}}}`)}); err != nil {
		t.Fatal(err)
	}
	return &payloads.Agent{Intents: r}
}

func code(err error) envelope.Code {
	var problem *envelope.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &problem):
		return problem.Code
	}
	return envelope.Code(err.Error())
}

func TestPayloadsThatAreRefused(t *testing.T) {
	t.Parallel()
	known, strict, like := agent(t), agent(t), agent(t)
	strict.RefuseUnknown, like.Default = true, "code.review"
	for name, c := range map[string]struct {
		agent   *payloads.Agent
		intent  string
		variant intents.Variant
		payload string
		want    bool // accepted
		code    envelope.Code
	}{
		"a task that fits":                 {known, "code.review", intents.Task, `{"n":1}`, true, ""},
		"a task with references":           {known, "code.review", intents.Task, `{"n":1,"references":[]}`, true, ""},
		"a task that does not fit":         {known, "code.review", intents.Task, `{"n":"1"}`, false, ""},
		"a result that does not fit":       {known, "code.review", intents.Result, `{"n":"1"}`, false, envelope.CodeOutputSchema},
		"a result with references":         {known, "code.review", intents.Result, `{"n":1,"references":[]}`, false, envelope.CodeOutputSchema},
		"an unknown intent":                {known, "x.y.z", intents.Task, `{"n":"1"}`, true, ""},
		"an unknown intent, refused":       {strict, "x.y.z", intents.Task, `{"n":1}`, false, envelope.CodeIntentUnknown},
		"an unknown intent like the known": {like, "x.y.z", intents.Task, `{"n":"1"}`, false, ""},
		"an unknown reserved intent":       {like, "aee.x.y", intents.Task, `{"n":1}`, false, envelope.CodeIntentReserved},
	} {
		err := c.agent.Validate(c.intent, c.variant, json.RawMessage(c.payload))
		if (err == nil) != c.want || c.code != "" && code(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The mesh's own codes may end any task; an agent's must fit the schema of errors.
func TestErrorsThatDoNotFit(t *testing.T) {
	t.Parallel()
	a := agent(t)
	for _, c := range []envelope.Code{"E_MINE", envelope.CodeTimeout} {
		if err := a.CheckError("code.review", envelope.Errorf(c, "x")); code(err) != c {
			t.Errorf("%s: %v", c, err)
		}
	}
	err := a.CheckError("code.review", envelope.Errorf("E_OTHER", "broken").WithBackoff(time.Second))
	problem := envelope.AsError(err)
	if problem.Code != envelope.CodeOutputSchema || problem.Backoff() != time.Second {
		t.Errorf("%+v", problem)
	}
	if err := a.CheckError("code.review", envelope.Errorf(envelope.CodeAgent, "x")); code(err) != envelope.CodeOutputSchema {
		t.Errorf("an agent error without a code of its own: %v", err)
	}
}

func TestResultsThatCannotBeGiven(t *testing.T) {
	t.Parallel()
	closed, open, text := agent(t), &payloads.Agent{Intents: intents.NewRegistry()}, &payloads.Agent{Intents: intents.NewRegistry(), Formats: []string{payloads.FormatText}}
	for name, c := range map[string]struct {
		agent  *payloads.Agent
		r      envelope.Requirements
		intent string
		given  bool
	}{
		"nothing required":                    {closed, envelope.Requirements{}, "code.review", true},
		"text":                                {open, envelope.Requirements{Format: "text"}, "x.y.z", true},
		"markdown, which few agents give":     {open, envelope.Requirements{Format: "markdown"}, "x.y.z", false},
		"json of an agent of texts":           {text, envelope.Requirements{Format: "json"}, "x.y.z", false},
		"text where the schema has another":   {closed, envelope.Requirements{Format: "text"}, "code.review", false},
		"json where the schema has it":        {closed, envelope.Requirements{Format: "json"}, "code.review", true},
		"evidence that the schema forbids":    {closed, envelope.Requirements{Evidence: true}, "code.review", false},
		"evidence of an open result":          {open, envelope.Requirements{Evidence: true}, "x.y.z", true},
		"evidence of a decision, forbidden":   {closed, envelope.Requirements{DecisionEvidence: "basic"}, "code.review", false},
		"no evidence of a decision":           {closed, envelope.Requirements{DecisionEvidence: envelope.EvidenceNone}, "code.review", true},
		"evidence of a reserved intent":       {open, envelope.Requirements{Evidence: true}, intents.StatusPing, false},
		"the one format of a reserved intent": {open, envelope.Requirements{Format: "json"}, intents.StatusPing, true},
	} {
		if err := c.agent.CanGive(&c.r, c.intent, c.intent); (err == nil) != c.given || err != nil && code(err) != envelope.CodeRequires {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestResultsThatLackWhatWasRequired(t *testing.T) {
	t.Parallel()
	a := &payloads.Agent{Intents: intents.NewRegistry()}
	for name, c := range map[string]struct {
		r       envelope.Requirements
		payload string
		fits    bool
	}{
		"nothing required":        {envelope.Requirements{}, `{}`, true},
		"a text":                  {envelope.Requirements{Format: "text"}, `{"text":"x"}`, true},
		"no text":                 {envelope.Requirements{Format: "markdown"}, `{"text":1}`, false},
		"json":                    {envelope.Requirements{Format: "json"}, `{"n":1}`, true},
		"a text alone":            {envelope.Requirements{Format: "json"}, `{"text":"x","usage":{}}`, false},
		"evidence":                {envelope.Requirements{Evidence: true}, `{"evidence_refs":["log:1"]}`, true},
		"evidence without a name": {envelope.Requirements{Evidence: true}, `{"evidence_refs":[""]}`, false},
		"no evidence":             {envelope.Requirements{Evidence: true}, `{}`, false},
		"no decision evidence":    {envelope.Requirements{DecisionEvidence: "basic"}, `{}`, false},
	} {
		if err := a.CheckResult("x.y.z", &c.r, json.RawMessage(c.payload)); (err == nil) != c.fits || err != nil && code(err) != envelope.CodeOutputSchema {
			t.Errorf("%s: %v", name, err)
		}
	}
}
