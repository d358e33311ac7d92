package agents_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// kinds are the kinds of agents by what does their work: a part of the
// document, and the operator's options.
var kinds = map[string]struct {
	block, orchestration string
	opts                 func(testing.TB) agents.Options
}{
	"model": {opts: func(testing.TB) agents.Options { return agents.Options{Model: modeltest.New()} }},
	"handler": {opts: func(testing.TB) agents.Options {
		return agents.Options{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) { return nil, nil })}
	}},
	"program":   {opts: func(t testing.TB) agents.Options { return agents.Options{Program: newProgram(t, "serve", nil)} }},
	"pipeline":  {orchestration: `"subagents": [{"ref": "agent.a", "alias": "a"}, {"ref": "agent.b", "alias": "b"}], "pipeline": ["a", "b"]`},
	"swarm":     {orchestration: `"subagents": [{"ref": "agent.a", "alias": "a"}, {"ref": "agent.b", "alias": "b"}], "parallel_execution": true`},
	"router":    {orchestration: `"role": "router", "subagents": [{"ref": "agent.a", "alias": "a"}, {"ref": "agent.b", "alias": "b", "role": "fallback"}]`},
	"led team":  {block: echoModel, orchestration: `"subagents": [{"ref": "agent.a", "alias": "a"}]`},
	"led swarm": {block: echoModel, orchestration: `"subagents": [{"ref": "agent.a", "alias": "a"}, {"ref": "agent.b", "alias": "b"}], "parallel_execution": true`},
}

// A field that a runtime MUST honour and this one does not refuses the agent at
// safety levels strict and regulated, whatever does the agent's work. At the
// other levels the agent is hosted with a warning (AAIF, Capability Negotiation
// and Compliance Controls).
func TestUnhonouredBindingFieldsAreRefusedAtStrictAndRegulated(t *testing.T) {
	t.Parallel()
	key, err := state.NewKeyring(state.Key{Secret: []byte(strings.Repeat("k", 32))})
	if err != nil {
		t.Fatal(err)
	}
	teams := []string{"pipeline", "swarm", "router", "led swarm"}
	outside := []string{"handler", "program"}
	none := func(string) bool { return false }
	notProgram := func(k string) bool { return k != "program" }
	for name, field := range map[string]struct {
		pointer, agent, compliance, orchestration string
		silentPII                                 bool // nothing is said of pii_handling
		keys                                      *state.Keyring
		kept                                      func(kind string) bool // by this runtime
		never                                     func(kind string) bool // hosted, whatever the level
	}{
		"constraints":                     {pointer: "/agent/constraints", agent: `"constraints": ["Never."]`, kept: func(k string) bool { return !slices.Contains(teams, k) && !slices.Contains(outside, k) }},
		"max_iterations":                  {pointer: "/agent/orchestration/max_iterations", orchestration: `"max_iterations": 3`, kept: func(k string) bool { return !slices.Contains(outside, k) }},
		"data_residency":                  {pointer: "/agent/compliance/data_residency", compliance: `"data_residency": "EU"`, kept: none},
		"data_residency, anywhere":        {pointer: "/agent/compliance/data_residency", compliance: `"data_residency": "global"`},
		"audit_log":                       {pointer: "/agent/compliance/audit_log", compliance: `"audit_log": true`, kept: none},
		"audit_log, none":                 {pointer: "/agent/compliance/audit_log", compliance: `"audit_log": false`},
		"pii_handling, detect":            {pointer: "/agent/compliance/pii_handling", compliance: `"pii_handling": "detect"`, kept: none},
		"pii_handling, detect by default": {pointer: "/agent/compliance/pii_handling", silentPII: true, kept: none},
		"pii_handling, anonymize":         {pointer: "/agent/compliance/pii_handling", compliance: `"pii_handling": "anonymize"`, kept: none},
		"pii_handling, reject":            {pointer: "/agent/compliance/pii_handling", compliance: `"pii_handling": "reject"`, kept: none},
		"pii_handling, encrypt":           {pointer: "/agent/compliance/pii_handling", compliance: `"pii_handling": "encrypt"`, keys: key},
		"pii_handling, encrypt, no key":   {pointer: "/agent/compliance/pii_handling", compliance: `"pii_handling": "encrypt"`, kept: none},
		"pii_handling, none":              {pointer: "/agent/compliance/pii_handling", compliance: `"pii_handling": "none"`},
		"human_in_the_loop":               {pointer: "/agent/compliance/human_in_the_loop", compliance: `"human_in_the_loop": {"enabled": true}`, kept: none, never: func(k string) bool { return k == "led team" }},
		"human_in_the_loop, not enabled":  {pointer: "/agent/compliance/human_in_the_loop", compliance: `"human_in_the_loop": {"enabled": false}`},
		"human_in_the_loop and tools":     {pointer: "/agent/compliance/human_in_the_loop", agent: `"tools": [{"name": "lint", "description": "Lints."}]`, compliance: `"human_in_the_loop": {"enabled": true}`, kept: none, never: func(string) bool { return true }},
		"timeout_seconds":                 {pointer: "/agent/runtime/timeout_seconds", agent: `"runtime": {"timeout_seconds": 5}`, kept: notProgram},
		"concurrency":                     {pointer: "/agent/runtime/concurrency", agent: `"runtime": {"concurrency": 2}`, kept: notProgram},
		"tools without approval":          {pointer: "/agent/tools", agent: `"tools": [{"name": "lint", "description": "Lints."}]`},
	} {
		for kind, k := range kinds {
			for _, level := range []aaif.SafetyLevel{"", aaif.SafetyMinimal, aaif.SafetyStandard, aaif.SafetyStrict, aaif.SafetyRegulated} {
				for _, accepted := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%s/%s/%v", name, kind, level, accepted), func(t *testing.T) {
						t.Parallel()
						opts := agents.Options{}
						if k.opts != nil {
							opts = k.opts(t)
						}
						opts.Tools, opts.StateKeys = registry(t, "lint"), field.keys
						if accepted {
							opts.AcceptUnhonoured = []string{field.pointer}
						}
						compliance := []string{field.compliance}
						if level != "" {
							compliance = append(compliance, fmt.Sprintf(`"safety_level": %q`, level))
						}
						if !strings.Contains(field.compliance, "pii_handling") && !field.silentPII {
							compliance = append(compliance, `"pii_handling": "none"`)
						}
						block := strings.Join(filled(k.block, field.agent,
							object("orchestration", k.orchestration, field.orchestration), object("compliance", compliance...)), ", ")
						a, err := agents.New(doc(t, block), opts)

						kept := field.kept == nil || field.kept(kind)
						strict := level == aaif.SafetyStrict || level == aaif.SafetyRegulated
						never := field.never != nil && field.never(kind)
						if !kept && (strict || never) && !accepted {
							var r *agents.Refusal
							if !errors.As(err, &r) || !strings.Contains(err.Error(), field.pointer) || r.MustAudit() != (level == aaif.SafetyRegulated) {
								t.Errorf("%s\nhosted, or refused for another reason: %v", block, err)
							}
							return
						}
						if err != nil {
							t.Fatalf("%s\nrefused: %v", block, err)
						}
						silent := field.silentPII && !strict // a default is said where it counts
						told := slices.ContainsFunc(a.Notices, func(p aaif.Problem) bool {
							return p.Pointer == field.pointer && p.Severity == aaif.SeverityWarning
						})
						if told == (kept || silent) && field.pointer != "/agent/tools" {
							t.Errorf("kept %v, and said %v: %v", kept, told, a.Notices)
						}
						for _, p := range a.Notices {
							if p.Severity == aaif.SeverityError {
								t.Errorf("it is hosted, and an error says: %v", p)
							}
						}
						if got, want := a.Accepted, accepted && !kept && !silent; slices.Contains(got, field.pointer) != want || len(got) > 1 || want != (a.Metadata[agents.MetaAccepted] != "") {
							t.Errorf("accepted %v, metadata %q; want it there: %v", got, a.Metadata[agents.MetaAccepted], want)
						}
					})
				}
			}
		}
	}
}

// The window of a Go program's own model is not known unless Options.ContextTokens says it: then
// min_context_tokens cannot be held, and the safety level decides.
func TestTheWindowOfGosOwnModelIsNotKnown(t *testing.T) {
	t.Parallel()
	const pointer = "/agent/model/min_context_tokens"
	for _, c := range []struct {
		level  aaif.SafetyLevel
		min    int // 0: not declared
		tokens int
		accept bool
		want   string
	}{
		{aaif.SafetyMinimal, 9000, 0, false, "warned"}, {aaif.SafetyStandard, 9000, 0, false, "warned"},
		{aaif.SafetyStrict, 9000, 0, false, "refused"}, {aaif.SafetyRegulated, 9000, 0, false, "refused"},
		{aaif.SafetyStrict, 9000, 0, true, "warned"},
		{aaif.SafetyStrict, 9000, 9000, false, "kept"}, {aaif.SafetyStrict, 0, 0, false, "kept"},
	} {
		opts := agents.Options{Model: modeltest.New(), ContextTokens: c.tokens}
		if c.accept {
			opts.AcceptUnhonoured = []string{pointer}
		}
		block := fmt.Sprintf(`"compliance": {"safety_level": %q, "pii_handling": "none"}`, c.level)
		if c.min > 0 {
			block += fmt.Sprintf(`, "model": {"min_context_tokens": %d}`, c.min)
		}
		a, err := agents.New(doc(t, block), opts)
		got := "kept"
		var refusal *agents.Refusal
		switch {
		case errors.As(err, &refusal) && strings.Contains(err.Error(), pointer):
			got = "refused"
		case err != nil:
			t.Errorf("%+v: %v", c, err)
		case counted(a.Notices)[pointer] == 1:
			got = "warned"
		}
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// object is a member of that name with these members, "" for none.
func object(name string, members ...string) string {
	if members = filled(members...); len(members) == 0 {
		return ""
	}
	return fmt.Sprintf("%q: {%s}", name, strings.Join(members, ", "))
}

func filled(parts ...string) []string {
	return slices.DeleteFunc(slices.Clone(parts), func(s string) bool { return s == "" })
}
