package agents_test

import (
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model/builtin"
	"github.com/aeemesh/aeemesh/agents/tool"
)

// "validate" and "worker" agree: Judge refuses the documents that New refuses, once and at
// their place, and no document that New hosts.
func TestJudgeRefusesWhatNewRefuses(t *testing.T) {
	t.Parallel()
	const noSchema = `{"type":"nonsense"}`
	function := func(more string) string {
		return `{"name":"lint","description":"Lints.","protocol":"function"` + more + `}`
	}
	team := func(more string) string {
		return `"orchestration":{"role":"orchestrator","parallel_execution":true,"subagents":[` + more + `]}`
	}
	for name, c := range map[string]struct {
		agent string
		want  string // the pointer and the message of the only refusal; "": the agent is hosted
	}{
		"nothing wrong":          {echoModel + `,"tools":[` + function("") + `]`, ""},
		"another model":          {`"model":{"provider":"openai","preferred":"gpt-4o"}`, ""},
		"no model":               {`"version":"1.0.0"`, ""},
		"a team":                 {team(`{"ref":"agent.b"}`), ""},
		"two tools of one name":  {echoModel + `,"tools":[` + function("") + `,` + function("") + `]`, "/agent/tools/1: there are two tools named lint"},
		"parameters of no type":  {echoModel + `,"tools":[` + function(`,"parameters_schema":`+noSchema) + `]`, "/agent/tools/0: tool lint: parameters schema is refused: "},
		"input of no type":       {echoModel + `,"io":{"input_schema":` + noSchema + `}`, "/agent/io: task schema of agent.test_agent.run is refused: "},
		"output that is a text":  {echoModel + `,"io":{"output_schema":{"type":"string"}}`, "/agent/io: result schema of agent.test_agent.run is refused: "},
		"an offline model":       {`"model":{"provider":"custom","provider_id":"builtin","preferred":"ecko"}`, "/agent/model/preferred: the offline model is "},
		"a script without turns": {`"model":{"provider":"custom","provider_id":"builtin","preferred":"script"}`, "/agent/model/params/extended/script: the script is missing"},
		"a skill without a name": {team(`{"ref":"skill:"}`), "/agent/orchestration/subagents/0/ref: the reference names no skill"},
		"numbers with a zero":    {echoModel + `,"version":"2026.01.15"`, ""},
		"a trace header":         {echoModel + `,"telemetry":{"trace_context_header":"X-Trace"}`, ""},
		"a header of NATS":       {echoModel + `,"telemetry":{"trace_context_header":"Nats-Trace"}`, `/agent/telemetry/trace_context_header: trace header "Nats-Trace" is not a valid header name, or is reserved`},
		"a header of the mesh":   {echoModel + `,"telemetry":{"trace_context_header":"aee-trace"}`, "/agent/telemetry/trace_context_header: "},
		"the header of a body":   {echoModel + `,"telemetry":{"trace_context_header":"Content-Type"}`, "/agent/telemetry/trace_context_header: "},
		"a long header":          {echoModel + `,"telemetry":{"trace_context_header":"` + strings.Repeat("x", 65) + `"}`, "/agent/telemetry/trace_context_header: "},
		"two members of a name":  {team(`{"ref":"agent.b","alias":"x"},{"ref":"agent.c","alias":"x"}`), "/agent/orchestration/subagents/1/alias: another subagent has the alias "},
	} {
		d := doc(t, c.agent)
		opts := agents.Options{}
		if strings.Contains(c.agent, "openai") || name == "no model" {
			opts.Model = builtin.New()
		}
		judged := agents.Judge(d, agents.Options{})
		opts.Tools = new(tool.Registry)
		if err := opts.Tools.Add(tool.Raw(tool.Definition{Name: "lint"}, nil)); err != nil {
			t.Fatal(err)
		}
		_, err := agents.New(d, opts)
		if (err == nil) != (c.want == "") || (len(judged.Refusals) == 0) != (c.want == "") {
			t.Errorf("%s: New says %v, Judge %v, want %q", name, err, judged.Refusals, c.want)
			continue
		}
		if err == nil {
			continue
		}
		if r := judged.Refusals; len(r) != 1 || !strings.HasPrefix(r[0].Pointer+": "+r[0].Message, c.want) || r[0].Severity != aaif.SeverityError {
			t.Errorf("%s: Judge says %v, want %q", name, r, c.want)
		}
		if n := strings.Count(err.Error(), "\n"); n != 0 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: New says %v, want %q, once", name, err, c.want)
		}
	}
}

// An agent that no worker could serve is not made: the worker would find out once it is connected, and
// stop its other agents too.
func TestAnAgentHasAnEntityThatAWorkerServes(t *testing.T) {
	t.Parallel()
	for as, want := range map[string]string{
		"human.bob": "entity human.bob: a human has no worker", "bus.x": "entity bus.x: a bus has no worker", "bob": `entity "bob": has no type`, "service.x": "",
	} {
		_, err := agents.New(doc(t, echoModel), agents.Options{As: as})
		judged := agents.Judge(doc(t, echoModel), agents.Options{As: as})
		if want == "" {
			if err != nil || judged.Refusals != nil {
				t.Errorf("%s: New says %v, Judge %v", as, err, judged.Refusals)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || len(judged.Refusals) != 1 || !strings.Contains(judged.Refusals[0].Message, want) {
			t.Errorf("%s: New says %v, Judge %v, want %s", as, err, judged.Refusals, want)
		}
	}
}

// A wrong member of the extension is reported once, not a second time in the decoder's words.
func TestAWrongExtensionIsReportedOnce(t *testing.T) {
	t.Parallel()
	d := definition(t, `{"sc_standard":"SC-006","agent":{"name":"Test Agent","goal":"Pass.","orchestration":{"parallel_execution":true,"subagents":[{"ref":"agent.b"}]}},
		"x-aeemesh":{"orchestration":{"width":"wide"}}}`)
	_, err := agents.New(d, agents.Options{})
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "/x-aeemesh/orchestration/width: it has to be a whole number") {
		t.Errorf("New says %v", err)
	}
}
