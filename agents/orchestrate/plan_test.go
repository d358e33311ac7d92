package orchestrate_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
)

// definition returns a document with an orchestration block, and further members beside it.
func definition(t *testing.T, block, beside string) *aaif.Definition {
	t.Helper()
	text := `{"sc_standard":"SC-006","agent":{"name":"Lead","goal":"Lead.","orchestration":` + block + `}` + beside + `}`
	doc, err := aaif.Parse([]byte(text), aaif.Options{Kind: aaif.KindAgent})
	if err != nil {
		t.Fatal(err)
	}
	return doc.Definition()
}

func TestWhichPatternABlockMeans(t *testing.T) {
	t.Parallel()
	const two = `"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"agent.b","alias":"b"}]`
	const when = `"subagents":[{"ref":"agent.a","when":{"lang":"always"}},{"ref":"agent.b"}]`
	for _, tt := range []struct {
		block string
		model bool
		want  orchestrate.Pattern
	}{
		{`{}`, false, ""},
		{`{"role":"worker","handoff":[{"condition":{"lang":"always"},"target_agent":"agent.b"}]}`, true, ""},
		{`{"pipeline":["agent.a","agent.b"]}`, true, orchestrate.Pipeline},
		{`{"pipeline":["a"],"parallel_execution":true,"role":"router",` + two + `}`, true, orchestrate.Pipeline},
		{`{"role":"router","parallel_execution":true,` + when + `}`, true, orchestrate.Router},
		{`{"role":"router",` + two + `}`, false, orchestrate.Router},
		{`{"parallel_execution":true,` + two + `}`, true, orchestrate.Swarm},
		{`{"role":"orchestrator",` + two + `}`, true, orchestrate.ModelLed},
		{`{"role":"orchestrator",` + two + `}`, false, orchestrate.Swarm},
	} {
		p, err := orchestrate.Compile(definition(t, tt.block, ""), tt.model)
		if err != nil {
			t.Errorf("%s: %v", tt.block, err)
			continue
		}
		var got orchestrate.Pattern
		if p != nil {
			got = p.Pattern
		}
		if got != tt.want {
			t.Errorf("%s, model %v: %q, want %q", tt.block, tt.model, got, tt.want)
		}
	}
}

// An alias takes precedence over a ref, even the ref of an earlier subagent.
func TestANameIsAnAliasBeforeARef(t *testing.T) {
	t.Parallel()
	const subagents = `"subagents":[{"ref":"writer","alias":"draft"},{"ref":"agent.editor","alias":"writer"},{"ref":"agent.judge","alias":"judge"}]`
	p, err := orchestrate.Compile(definition(t, `{"pipeline":["draft","writer","agent.judge"],`+subagents+`}`, ""), false)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Steps, []int{0, 1, 2}) {
		t.Errorf("the steps are the members %v", p.Steps)
	}
}

func TestAPlanThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ block, beside, want string }{
		{`{"pipeline":["lint"]}`, "", "/agent/orchestration/pipeline/0"},
		{`{"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"agent.b","alias":"a"}]}`, "", "two subagents"},
		{`{"subagents":[{"ref":"agent.a","when":{"lang":"cel","expr":"1 +"}}]}`, "", "/agent/orchestration/subagents/0/when"},
		{`{"subagents":[{"ref":"agent.a"}],"consensus":{"strategy":"referee"}}`, "", "needs a referee_agent"},
		{`{"subagents":[{"ref":"agent.a"}],"consensus":{"strategy":"referee","referee_agent":"judge"}}`, "", "/consensus/referee_agent"},
		{`{"pipeline":["agent.a"]}`, `,"x-aeemesh":{"orchestration":{"stpes":{}}}`, "stpes"},
		{`{"pipeline":["agent.a"]}`, `,"x-aeemesh":{"orchestration":{"steps":{"agent.b":{}}}}`, "no subagent is called so"},
		{`{"pipeline":["agent.a"]}`, `,"x-aeemesh":{"orchestration":{"steps":{"agent.a":{"on_error":"ignore"}}}}`, "on_error"},
		{`{"pipeline":["agent.a"]}`, `,"x-aeemesh":{"orchestration":{"steps":{"agent.a":{"intent":"aee.mine"}}}}`, "intent: aee.mine is reserved"},
		{`{"pipeline":["agent.a"]}`, `,"x-aeemesh":{"orchestration":{"steps":{"agent.a":{"input":{"lang":"cel","expr":"1"}}}}}`, "jmespath"},
		{`{"pipeline":["agent.a"]}`, `,"x-aeemesh":{"orchestration":{"steps":{"a/b~c":{}}}}`, "/steps/a~1b~0c: no subagent"},
		{`{"pipeline":["agent.a"]}`, `,"x-aeemesh":{"orchestration":{"steps":{"a/b~c":{"on_error":"ignore"}}}}`, "/steps/a~1b~0c/on_error: "},
		{`{"subagents":[{"ref":"agent.a","alias":"a/b~c"}]}`, `,"x-aeemesh":{"orchestration":{"steps":{"a/b~c":{"input":{"lang":"cel","expr":"1"}}}}}`, "/steps/a~1b~0c/input: "},
		{`{"pipeline":["agent.a"]}`, `,"x-aeemesh":{"orchestration":{"vote_on":"verdict"}}`, "JSON Pointer"},
	} {
		_, err := orchestrate.Compile(definition(t, tt.block, tt.beside), false)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v, want %q", tt.block, tt.beside, err, tt.want)
		}
	}
}

func TestBareIsWhatTheAgentSaid(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ payload, want string }{
		{`{"text":"a"}`, `{"text":"a"}`},
		{`{ "usage": {"input_tokens": 3}, "text": "a", "swarm": {}, "n": 1.50 }`, `{"text":"a","n":1.50}`},
		{`{"usage":{}}`, `{}`},
		{`{"text":"a","schema_update_suggestion":{"patch_id":"x"}}`, `{"text":"a"}`},
		{`[1]`, `[1]`},
		{`no json`, `no json`},
	} {
		if got := orchestrate.Bare([]byte(tt.payload)); string(got) != tt.want {
			t.Errorf("%s: %s, want %s", tt.payload, got, tt.want)
		}
	}
}

func TestPathsOfDocuments(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string]bool{"./a": true, "../a": true, "/a": true, "a.json": true, "b/a.YAML": true, "a.yml": true, "a.cbor": true,
		"agent.echo": false, "a": false, ".a/b": false, "a.txt": false, "": false} {
		if orchestrate.IsPath(ref) != want {
			t.Errorf("IsPath(%q) = %v", ref, !want)
		}
	}
}
