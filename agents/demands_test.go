package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// demand sends a task over a lane, and returns the result's payload with ids taken out,
// or the error's code.
func (l *lane) demand(durable bool, entity, payload, requires string) string {
	l.t.Helper()
	until(l.t, "the agent answers", func() bool { _, err := l.client.Ping(l.ctx(), entity); return err == nil })
	task := l.task(entity, payload, requires)
	var got string
	if durable {
		l.submit(task)
		got = l.result(task)
	} else if reply, err := l.client.Send(l.ctx(), task, mesh.SendOptions{}); err != nil {
		got = string(envelope.AsError(err).Code)
	} else {
		got = string(reply.Payload)
	}
	got = strings.ReplaceAll(got, task.ID, "TASK")
	got = regexp.MustCompile(`run:[0-9a-f-]{36}`).ReplaceAllString(got, "run:RUN")
	return regexp.MustCompile(`aee.envelope:[0-9A-Z]{26}`).ReplaceAllString(got, "aee.envelope:ID")
}

// answering is a handler that gives always the same.
func answering(payload string) mesh.Handler {
	return mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) { return json.RawMessage(payload), nil })
}

// Gap 17 of the traceability review: format, evidence and min_confidence are
// met or refused, whatever does the agent's work.
func TestWhatATaskRequiresOfTheResult(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	const openai = `"model": {"provider": "openai", "preferred": "m"}`
	fake := func(turns ...modeltest.Turn) agents.Options { return agents.Options{Model: modeltest.New(turns...)} }
	sureOf := func(c string) modeltest.Turn {
		return says(`{"decision":"d","reason_summary":"r","action_taken":"a","confidence":` + c + `}`)
	}
	for name, c := range map[string]struct {
		agent    string
		opts     func() agents.Options
		requires string
		live     string // the payload, or a code
		durable  string // the same; "": as live
	}{
		"a model, text":     {openai, func() agents.Options { return fake(says("hi"), says("hi")) }, `{"format":"text"}`, `{"text":"hi"}`, ""},
		"a model, json":     {openai, func() agents.Options { return fake(says(`{"n":1}`)) }, `{"format":"json"}`, `{"n":1}`, ""},
		"a model, markdown": {openai, func() agents.Options { return fake(says("# hi")) }, `{"format":"markdown"}`, `{"text":"# hi"}`, ""},
		"a model, a table":  {openai, func() agents.Options { return fake(says("hi")) }, `{"format":"csv"}`, "E_REQUIRES", ""},
		"a document of JSON is not asked for text": {`"io": {"format": "json"}, ` + openai, func() agents.Options { return fake(says(`{"n":1}`)) }, `{"format":"text"}`, "E_REQUIRES", ""},
		"a document of text is not asked for JSON": {`"io": {"format": "text"}, ` + openai, func() agents.Options { return fake(says(`hi`)) }, `{"format":"json"}`, "E_REQUIRES", ""},
		"a document of Markdown gives text":        {`"io": {"format": "markdown"}, ` + openai, func() agents.Options { return fake(says(`hi`)) }, `{"format":"text"}`, `{"text":"hi"}`, ""},
		"a model, evidence": {openai, func() agents.Options { return fake(says("hi")) }, `{"evidence":true}`,
			`{"text":"hi","evidence_refs":["aee.envelope:TASK"]}`, `{"text":"hi","evidence_refs":["aee.envelope:TASK","run:RUN"]}`},
		"a model with a tool, evidence": {lintTool + `,` + openai, func() agents.Options {
			o := fake(calls(call("1", "lint", `{}`)), says("hi"))
			o.Tools = registry(t, "lint")
			return o
		}, `{"evidence":true}`, `{"text":"hi","evidence_refs":["aee.envelope:TASK","tool:lint"]}`, `{"text":"hi","evidence_refs":["aee.envelope:TASK","tool:lint","run:RUN"]}`},
		"a model that has its own": {openai, func() agents.Options { return fake(says(`{"evidence_refs":["page 3"]}`)) }, `{"evidence":true,"format":"json"}`, `{"evidence_refs":["page 3"]}`, ""},
		"no room": {`"io": {"output_schema": {"type": "object", "properties": {"text": {}}, "additionalProperties": false}}, ` + openai,
			func() agents.Options { return fake(says("hi")) }, `{"evidence":true}`, "E_REQUIRES", ""},
		"a model, sure":     {openai, func() agents.Options { return fake(says("hi"), sureOf("0.9")) }, `{"min_confidence":0.8}`, `{"text":"hi"}`, ""},
		"a model, not sure": {openai, func() agents.Options { return fake(says("hi"), sureOf("0.7")) }, `{"min_confidence":0.8}`, "E_REQUIRES", ""},

		"a handler, text":        {"", func() agents.Options { return agents.Options{Handler: answering(`{"text":"hi"}`)} }, `{"format":"text"}`, `{"text":"hi"}`, ""},
		"a handler, not text":    {"", func() agents.Options { return agents.Options{Handler: answering(`{"n":1}`)} }, `{"format":"text"}`, "E_OUTPUT_SCHEMA", ""},
		"a handler, markdown":    {"", func() agents.Options { return agents.Options{Handler: answering(`{"text":"hi"}`)} }, `{"format":"markdown"}`, "E_REQUIRES", ""},
		"a handler that says so": {`"io": {"format": "markdown"}`, func() agents.Options { return agents.Options{Handler: answering(`{"text":"hi"}`)} }, `{"format":"markdown"}`, `{"text":"hi"}`, ""},
		"a handler, no evidence": {"", func() agents.Options { return agents.Options{Handler: answering(`{"text":"hi"}`)} }, `{"evidence":true}`, "E_OUTPUT_SCHEMA", ""},
		"a handler, evidence":    {"", func() agents.Options { return agents.Options{Handler: answering(`{"n":1,"evidence_refs":["log:7"]}`)} }, `{"evidence":true,"format":"json"}`, `{"n":1,"evidence_refs":["log:7"]}`, ""},
		"a handler, sure":        {"", func() agents.Options { return agents.Options{Handler: answering(`{"confidence":0.9}`)} }, `{"min_confidence":0.8}`, `{"confidence":0.9}`, ""},
		"a handler, accountable": {"", func() agents.Options {
			return agents.Options{Handler: answering(`{"decision_evidence":{"confidence":0.9}}`)}
		}, `{"min_confidence":0.8}`, `{"decision_evidence":{"confidence":0.9}}`, ""},
		"a handler, not sure":   {"", func() agents.Options { return agents.Options{Handler: answering(`{"confidence":0.7}`)} }, `{"min_confidence":0.8}`, "E_REQUIRES", ""},
		"a handler, in percent": {"", func() agents.Options { return agents.Options{Handler: answering(`{"confidence":70}`)} }, `{"min_confidence":0.8}`, "E_REQUIRES", ""},
		"a handler, in words":   {"", func() agents.Options { return agents.Options{Handler: answering(`{"confidence":"high"}`)} }, `{"min_confidence":0}`, "E_REQUIRES", ""},
		"a handler, below zero": {"", func() agents.Options { return agents.Options{Handler: answering(`{"confidence":-0.1}`)} }, `{"min_confidence":0}`, "E_REQUIRES", ""},
		"a handler, silent":     {"", func() agents.Options { return agents.Options{Handler: answering(`{"n":1}`)} }, `{"min_confidence":0}`, "E_REQUIRES", ""},

		"a program, text":        {"", func() agents.Options { return agents.Options{Program: newProgram(t, "serve", nil)} }, `{"format":"text"}`, `{"text":"hi"}`, ""},
		"a program, json":        {"", func() agents.Options { return agents.Options{Program: newProgram(t, "serve", nil)} }, `{"format":"json"}`, "E_OUTPUT_SCHEMA", ""},
		"a program, no evidence": {"", func() agents.Options { return agents.Options{Program: newProgram(t, "serve", nil)} }, `{"evidence":true}`, "E_OUTPUT_SCHEMA", ""},
		"a program, silent":      {"", func() agents.Options { return agents.Options{Program: newProgram(t, "serve", nil)} }, `{"min_confidence":0.1}`, "E_REQUIRES", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLane(t)
			a := newAgent(t, doc(t, c.agent), c.opts())
			l.host(a, nil)
			if c.durable == "" {
				c.durable = c.live
			}
			for durable, want := range map[bool]string{false: c.live, true: c.durable} {
				if got := l.demand(durable, a.Entity, `{"text":"hi","do":"echo"}`, c.requires); got != want {
					t.Errorf("durable %t: %s, want %s", durable, got, want)
				}
			}
		})
	}
}

// A model that is asked for a form is told so.
func TestAModelIsToldTheFormatThatATaskRequires(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]struct {
		words string
		form  model.FormatType
	}{"json": {"one JSON object", model.FormatJSON}, "markdown": {"Markdown", ""}, "text": {"", ""}} {
		w, entity, fake := hostFake(t, `"model": {"provider": "openai", "preferred": "m"}`, agents.Options{}, says(`{"n":1}`))
		w.send(entity, `{"text":"go"}`, sending{requires: `{"format":"` + format + `"}`})
		req := fake.Requests()[0]
		system := req.Messages[0].Content
		if req.Format.Type != want.form || !strings.Contains(system, want.words) || want.words == "" && strings.Contains(system, "Answer") {
			t.Errorf("%s: format %+v, system prompt %q", format, req.Format, system)
		}
	}
}

// A team passes the conditions for its result on to the member that gives it;
// the evidence of a combined result is its members' tasks.
func TestWhatATaskRequiresOfATeam(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	const pipeline = `{"subagents":[{"ref":"agent.one","alias":"one"},{"ref":"agent.two","alias":"two"}],"pipeline":["one","two"]}`
	const swarm = `{"subagents":[{"ref":"agent.one","alias":"one"},{"ref":"agent.two","alias":"two"}],"parallel_execution":true}`
	ends := func(first, last string) string {
		return `{"subagents":[{"ref":"agent.` + first + `","alias":"first"},{"ref":"agent.bad","alias":"synthesizer"` + last + `}],"pipeline":["first","synthesizer"]}`
	}
	merged := func(first, how string) string {
		return `{"subagents":[{"ref":"agent.` + first + `","alias":"first"},{"ref":"agent.sure","alias":"other"},{"ref":"agent.bad","alias":"synthesizer"}],"parallel_execution":true` + how + `}`
	}
	const never, vote = `,"when":{"lang":"never"}`, `,"consensus":{"strategy":"majority_vote"}`
	const skips = `,"x-aeemesh":{"orchestration":{"steps":{"synthesizer":{"on_error":"skip"}}}}`
	const sure = `{"text":"go sure","confidence":0.9}`
	for name, c := range map[string]struct {
		team, requires, want string
		told                 string // in requires of the last member
	}{
		// the result is an output that was not asked for a confidence
		"the last step is skipped":                 {ends("one", never), `{"min_confidence":0.5}`, "E_REQUIRES", ""},
		"the last step fails and is skipped":       {ends("one", ""), `{"min_confidence":0.5}`, "E_REQUIRES", ""},
		"skipped, nothing required":                {ends("one", never), `{}`, `{"text":"go one"}`, ""},
		"skipped, and the step before says enough": {ends("sure", never), `{"min_confidence":0.9}`, sure, ""},
		"failed, and the step before says enough":  {ends("sure", ""), `{"min_confidence":0.9}`, sure, ""},
		"skipped, and the step before is unsure":   {ends("sure", never), `{"min_confidence":0.95}`, "E_REQUIRES", ""},
		"the synthesizer is skipped":               {merged("one", ""), `{"min_confidence":0.5}`, "E_REQUIRES", ""},
		"the same, and the winner says enough":     {merged("sure", vote), `{"min_confidence":0.9}`, sure, ""},
		"the same, and the winner is unsure":       {merged("sure", vote), `{"min_confidence":0.95}`, "E_REQUIRES", ""},

		"a pipeline, evidence":   {pipeline, `{"evidence":true}`, `{"text":"go one two","evidence_refs":["seen by two"]}`, `"evidence":true`},
		"a pipeline, format":     {pipeline, `{"format":"json"}`, "E_OUTPUT_SCHEMA", `"format":"json"`},
		"a pipeline, confidence": {pipeline, `{"min_confidence":0.5}`, `{"text":"go one two","evidence_refs":["seen by two"]}`, `"min_confidence":0.5`},
		"a swarm, evidence": {swarm, `{"evidence":true}`,
			`{"evidence_refs":["aee.envelope:TASK","aee.envelope:ID","aee.envelope:ID"]}`, ""},
		"a swarm, confidence": {swarm, `{"min_confidence":0.5}`, "E_REQUIRES", ""},
		"a swarm, markdown":   {swarm, `{"format":"markdown"}`, "E_REQUIRES", ""},
	} {
		for _, durable := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := newLane(t)
				told := make(chan string, 16)
				for _, who := range []string{"one", "two", "sure", "bad"} {
					l.host(&agents.Agent{Agent: mesh.Agent{Entity: "agent." + who, Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
						var in struct{ Text string }
						if err := json.Unmarshal(task.Envelope.Payload, &in); err != nil {
							return nil, err
						}
						switch who {
						case "two":
							told <- string(task.Envelope.Requires)
						case "sure":
							return json.RawMessage(sure), nil
						case "bad":
							return nil, envelope.Errorf(envelope.CodeTool, "it failed")
						}
						return json.RawMessage(`{"text":"` + in.Text + ` ` + who + `","evidence_refs":["seen by ` + who + `"],"usage":{"input_tokens":1}}`), nil
					})}}, nil)
					until(t, "the member answers", func() bool { _, err := l.client.Ping(l.ctx(), "agent."+who); return err == nil })
				}
				beside := ""
				if strings.Contains(c.team, "synthesizer") {
					beside = skips
				}
				a := lead(t, c.team, beside)
				l.host(a, nil)
				got := l.demand(durable, a.Entity, `{"text":"go"}`, c.requires)
				var members, want map[string]json.RawMessage
				if json.Unmarshal([]byte(c.want), &want) != nil {
					if got != c.want {
						t.Errorf("got %s, want %s", got, c.want)
					}
				} else if err := json.Unmarshal([]byte(got), &members); err != nil {
					t.Error(err)
				}
				for name, raw := range want {
					if string(members[name]) != string(raw) {
						t.Errorf("member %s of %s, want %s", name, got, raw)
					}
				}
				if c.told != "" {
					if requires := <-told; !strings.Contains(requires, c.told) {
						t.Errorf("the last member is told %s", requires)
					}
				}
			})
		}
	}
}

// An answer that the team's own model gives rests on the members' tasks, too.
func TestTheEvidenceOfATeamsModelNamesItsMembersTasks(t *testing.T) {
	t.Parallel()
	const members = `"subagents":[{"ref":"agent.one","alias":"one"},{"ref":"agent.two","alias":"two"}]`
	for name, c := range map[string]struct{ team, script, tools string }{
		"model-led": {`{"role":"orchestrator",` + members + `}`, `[{"call":[{"name":"one","arguments":{"text":"dig"}},{"name":"two","arguments":{"text":"fill"}}]},{"say":"done"}]`, `,"tool:one","tool:two"`},
		"swarm":     {`{"parallel_execution":true,` + members + `}`, `[{"say":"done"}]`, ""},
	} {
		for _, durable := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s durable=%v", name, durable), func(t *testing.T) {
				t.Parallel()
				l := newLane(t)
				for _, m := range []*member{{name: "one"}, {name: "two"}} {
					l.serve(m.agent())
				}
				l.serve(newAgent(t, definition(t, `{"sc_standard":"SC-006","agent":{"name":"Lead","goal":"Lead.","orchestration":`+c.team+fmt.Sprintf(builtinScript, c.script)+`}}`), agents.Options{}))
				want := `"evidence_refs":["aee.envelope:TASK","aee.envelope:ID","aee.envelope:ID"` + c.tools
				if durable {
					want += `,"run:RUN"`
				}
				if got := l.demand(durable, "agent.lead", `{"text":"go"}`, `{"evidence":true}`); !strings.Contains(got, want+"]") {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		}
	}
}
