package aaif

import (
	"slices"
	"testing"
)

// A path covers what is below it, and no other path that begins with the same letters: a worker
// that honours model.provider need not know model.provider_id.
func TestAFieldCoversNoOtherThatBeginsLikeIt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		path, above string
		want        bool
	}{
		{"/agent/model", "/agent/model", true},
		{"/agent/model/provider", "/agent/model", true},
		{"/agent/model/provider_id", "/agent/model/provider", false},
		{"/agent/model", "/agent/model/provider", false},
		{"/agent/model", "", true},
	} {
		if got := within(tt.path, tt.above); got != tt.want {
			t.Errorf("%s within %s: %v", tt.path, tt.above, got)
		}
	}
	doc := definitionDoc(t, "model: {provider: custom, provider_id: p, base_url: 'https://h'}")
	s := Supported{Fields: []string{"/sc_standard", "/agent/name", "/agent/goal", "/agent/model/provider", "/agent/model/base_url"}, Providers: SetOf(ProviderCustom)}
	if problems := NotHonoured(doc, s); len(problems) != 1 || problems[0].Pointer != "/agent/model/provider_id" {
		t.Errorf("%v", problems)
	}
}

// A runtime that lacks one field of a level is of the level below it (Conformance Levels).
func TestEachFieldOfALevelIsNeeded(t *testing.T) {
	t.Parallel()
	tools := []string{"/agent/tools/*/name", "/agent/tools/*/description", "/agent/tools/*/parameters_schema"}
	fields := map[Level][]string{
		LevelCore:       {"/agent/name", "/agent/goal"},
		LevelTooled:     tools,
		LevelPortable:   {"/agent/constraints"},
		LevelMultiAgent: {"/agent/orchestration/role", "/agent/orchestration/subagents/*/ref", "/agent/orchestration/handoff/*/condition", "/agent/orchestration/handoff/*/target_agent"},
		LevelObservable: {"/agent/telemetry/tracing", "/agent/evaluation/metrics"},
		LevelEnterprise: {"/agent/compliance/safety_level", "/agent/compliance/audit_log", "/provenance/signature"},
	}
	have := Offer{Capabilities: SetOf(CapStateCheckpoint, CapStateRestore)}
	for level, own := range fields {
		var all []string
		for l := level; l != LevelNone; l = l.Base() {
			all = append(all, fields[l]...)
		}
		s, stateful := Supported{Fields: all, Protocols: SetOf(Protocols()...)}, level
		if level == LevelEnterprise {
			stateful = LevelStateful // checkpoints are all that it needs more
		}
		if got := s.Level(have); got != stateful {
			t.Errorf("all of %s: %s", level, got)
		}
		for _, f := range own {
			s.Fields = slices.DeleteFunc(slices.Clone(all), func(other string) bool { return other == f })
			if got := s.Level(have); got != level.Base() {
				t.Errorf("%s without %s: %s", level, f, got)
			}
		}
	}
	audited := Supported{Fields: slices.Concat(fields[LevelCore], tools, fields[LevelPortable], fields[LevelObservable], fields[LevelEnterprise]), Protocols: SetOf(Protocols()...)}
	for _, alone := range []string{CapStateCheckpoint, CapStateRestore} {
		if got := audited.Level(Offer{Capabilities: SetOf(alone)}); got != LevelEnterprise {
			t.Errorf("with %s alone: %s", alone, got)
		}
	}
}

// Only what a runtime must honour is an error, and a default that it does honour is not reported.
func TestABindingFieldIsAnError(t *testing.T) {
	t.Parallel()
	for pointer, want := range map[string]Severity{"/agent/runtime/concurrency": SeverityError, "/agent/runtime/queue": SeverityWarning} {
		if p := Unhonoured(pointer, RuleNotHonoured, SeverityWarning, "m"); p.Severity != want || (p.Hint != "") != (want == SeverityError) {
			t.Errorf("%s: %+v", pointer, p)
		}
	}
	s := WorkerSupports()
	s.Values[pii] = []string{string(PIIDetect)}
	if problems := NotHonoured(definitionDoc(t, "compliance: {safety_level: strict}"), s); len(problems) != 0 {
		t.Errorf("%v", problems)
	}
	if problems := NotHonoured(definitionDoc(t, "compliance: {safety_level: strict}"), WorkerSupports()); len(problems) != 1 || problems[0].Pointer != pii || problems[0].Severity != SeverityError {
		t.Errorf("%v", problems)
	}
}

// An operator accepts conditions in words one by one: no other condition holds for it, and the
// document that was read stays as it is.
func TestHoldHintsHoldsWhatIsNamed(t *testing.T) {
	t.Parallel()
	const second, third = "/agent/orchestration/subagents/1/when", "/agent/orchestration/subagents/2/when"
	doc := definitionDoc(t, `orchestration:
  role: orchestrator
  pipeline: [one, two, three]
  subagents:
    - {ref: agent.one, alias: one, when: {lang: cel, expr: "true"}}
    - {ref: agent.two, alias: two, when: if it is good}
    - {ref: agent.three, alias: three, when: if it is bad}`)
	when := func(d *Document, i int) Condition { return *d.Definition().Agent.Orchestration.Subagents[i].When }
	held, problems := doc.HoldHints([]string{"/agent/orchestration/subagents/0/when", second, "/agent/constraints"})
	if c := when(held, 1); c.Lang != LangAlways || c.NL != "if it is good" {
		t.Errorf("named: %+v", c)
	}
	if c := when(held, 2); c.Lang != "" || c.Hint != "if it is bad" {
		t.Errorf("not named: %+v", c)
	}
	if c := when(held, 0); c.Lang != LangCEL {
		t.Errorf("not in words: %+v", c)
	}
	if c := when(doc, 1); c.Lang != "" || c.Hint != "if it is good" {
		t.Errorf("the document itself: %+v", c)
	}
	if len(problems) != 1 || problems[0].Pointer != second || problems[0].Severity != SeverityWarning || problems[0].Hint != HintAccepted || problems[0].Line == 0 {
		t.Errorf("%+v", problems)
	}
	if same, problems := doc.HoldHints([]string{"/agent/constraints"}); same != doc || problems != nil {
		t.Errorf("nothing of it: %v", problems)
	}
	if both, problems := doc.HoldHints([]string{second, third}); when(both, 1).Lang != LangAlways || when(both, 2).Lang != LangAlways || len(problems) != 2 {
		t.Errorf("both: %v", problems)
	}
	led := definitionDoc(t, "orchestration: {role: orchestrator, subagents: [{ref: agent.one, alias: one, when: if it is good}]}")
	if same, problems := led.HoldHints([]string{"/agent/orchestration/subagents/0/when"}); same != led || problems != nil { // its model decides
		t.Errorf("no pipeline: %v", problems)
	}
}
