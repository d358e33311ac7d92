package agents_test

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// doc is a definition whose agent block has these members beside name and
// goal.
func doc(t testing.TB, agent string) *aaif.Document {
	t.Helper()
	if agent != "" {
		agent = ", " + agent
	}
	return definition(t, `{"sc_standard":"SC-006","agent":{"name":"Test Agent","goal":"Pass."`+agent+`}}`)
}

const echoModel = `"model":{"provider":"custom","provider_id":"builtin","preferred":"echo"}`

func newAgent(t testing.TB, d *aaif.Document, opts agents.Options) *agents.Agent {
	t.Helper()
	a, err := agents.New(d, opts)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestNewReadsTheDefinition(t *testing.T) {
	t.Parallel()
	a := newAgent(t, definition(t, `{
		"sc_standard": "SC-006", "sc_version": "3.4.0", "agent_id": "0b5c7f0e-8d0d-4f0e-9d52-0d3f3c1a7c11", "status": "draft", "tags": ["a", "b"],
		"agent": {
			"name": "Invoice Chaser", "version": "1.2.3", "goal": "Get paid.", "skills": ["writing"],
			"model": {"provider": "custom", "provider_id": "builtin", "preferred": "echo"},
			"io": {"input_schema": {"type": "object", "required": ["text"]}},
			"runtime": {"timeout_seconds": 15, "concurrency": 4, "environment": "test"}
		}}`), agents.Options{Metadata: map[string]string{"team": "billing"}, Queue: 7})
	type view struct {
		Entity, Version, Description, AgentID, DefaultIntent string
		Concurrency, Queue                                   int
		Timeout                                              time.Duration
		Metadata                                             map[string]string
	}
	got := view{a.Entity, a.Version, a.Description, a.AgentID, a.DefaultIntent, a.Concurrency, a.Queue, a.Timeout, a.Metadata}
	want := view{
		"agent.invoice_chaser", "1.2.3", "Get paid.", "0b5c7f0e-8d0d-4f0e-9d52-0d3f3c1a7c11", "agent.invoice_chaser.run", 4, 7, 15 * time.Second,
		map[string]string{"aaif_version": "3.4.0", "runs": "model", "status": "draft", "tags": "a,b", "skills": "writing", "environment": "test", "team": "billing"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if len(a.Notices) != 0 {
		t.Errorf("notices %v", a.Notices)
	}
	if got := newAgent(t, doc(t, echoModel), agents.Options{As: "service.x.y"}).Entity; got != "service.x.y" {
		t.Errorf("as: got %s", got)
	}
}

func TestConcurrencyCanBeLoweredNotRaised(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ declared, asked, want, notices int }{
		{0, 0, 1, 0}, {0, 8, 8, 0}, {4, 0, 4, 0}, {4, 2, 2, 0}, {4, 8, 4, 1},
	} {
		text := echoModel
		if c.declared > 0 {
			text += `, "runtime": {"concurrency": ` + string(rune('0'+c.declared)) + `}`
		}
		a := newAgent(t, doc(t, text), agents.Options{Concurrency: c.asked})
		if a.Concurrency != c.want || len(a.Notices) != c.notices {
			t.Errorf("%+v: got %d, notices %v", c, a.Concurrency, a.Notices)
		}
	}
}

// pointers are the places that notices are about, with their severities.
func pointers(ps []aaif.Problem) map[string]aaif.Severity {
	m := make(map[string]aaif.Severity)
	for _, p := range ps {
		m[p.Pointer] = p.Severity
	}
	return m
}

func TestWhatIsNotHonouredIsNoticed(t *testing.T) {
	t.Parallel()
	const text = echoModel + `,
		"constraints": ["Be kind."], "orchestration": {"max_iterations": 3},
		"memory": [{"scope": "session", "backend": "in_memory", "content": "x"}],
		"compliance": {"safety_level": "standard", "audit_log": true},
		"tools": [{"name": "far", "description": "Far away.", "protocol": "mcp", "endpoint": "mcp://far/away"}],
		"required_capabilities": ["memory.vector", "tool.function"]`
	a := newAgent(t, doc(t, text), agents.Options{})
	want := map[string]aaif.Severity{
		"/agent/memory": aaif.SeverityWarning, "/agent/compliance/audit_log": aaif.SeverityWarning,
		"/agent/tools/0": aaif.SeverityWarning, "/agent/required_capabilities": aaif.SeverityWarning,
	}
	if got := pointers(a.Notices); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if a.Negotiation.Action != aaif.ActionDisable || !slices.Equal(a.Negotiation.Unsatisfied, []string{"memory.vector"}) {
		t.Errorf("negotiation %+v", a.Negotiation)
	}

	// For a program, a notice names the fields that it must honour itself.
	a = newAgent(t, doc(t, text), agents.Options{Program: newProgram(t, "serve", nil)})
	for pointer, severity := range map[string]aaif.Severity{"/agent/constraints": aaif.SeverityWarning, "/agent/model": aaif.SeverityNote,
		"/agent/tools": aaif.SeverityNote, "/agent/orchestration/max_iterations": aaif.SeverityWarning} {
		want[pointer] = severity
	}
	delete(want, "/agent/tools/0")
	if got := pointers(a.Notices); !maps.Equal(got, want) {
		t.Errorf("with a program: got  %v\nwant %v", got, want)
	}
}

// A worker also reports fields that have no effect, once each, and not those
// that a program or handler keeps.
func TestFieldsWithoutEffectAreNoticed(t *testing.T) {
	t.Parallel()
	const text = `"model": {"provider": "custom", "provider_id": "builtin", "preferred": "echo", "response_format": "json_schema"},
		"memory": [{"scope": "task", "content": "c", "backend": "redis", "embedding_model": "e"}],
		"tools": [{"name": "fn", "description": "d", "parameters_schema": {}, "endpoint": "https://x.example"}],
		"io": {"format": "markdown"}`
	d := definition(t, `{"sc_standard": "SC-006", "sc_version": "9.0.0", "agent": {"name": "A", "goal": "G", `+text+`}}`)
	want := map[string]int{"/sc_version": 1, "/agent/model/response_format": 1, "/agent/memory": 1, "/agent/tools/0/endpoint": 1, "/agent/io/format": 1}
	if got := counted(newAgent(t, d, agents.Options{Tools: registry(t, "fn")}).Notices); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	want = map[string]int{"/sc_version": 1, "/agent/model": 1, "/agent/memory": 1, "/agent/tools": 1, "/agent/io/format": 1}
	if got := counted(newAgent(t, d, agents.Options{Program: newProgram(t, "serve", nil)}).Notices); !maps.Equal(got, want) {
		t.Errorf("with a program: got  %v\nwant %v", got, want)
	}
}

// The instructions and the form of answers are for a model: where something else does the
// work, a notice says that they are not used.
func TestInstructionsThatNoModelReadsAreNoticed(t *testing.T) {
	t.Parallel()
	for kind, k := range kinds {
		want := map[string]int{"/agent/instructions": 1, "/agent/io/format": 1}
		if kind == "model" || strings.HasPrefix(kind, "led ") {
			clear(want)
		}
		text := `"instructions": "Be brief.", "io": {"format": "markdown"}`
		if k.block != "" {
			text += ", " + k.block
		}
		if k.orchestration != "" {
			text += `, "orchestration": {` + k.orchestration + `}`
		}
		opts := agents.Options{}
		if k.opts != nil {
			opts = k.opts(t)
		}
		got := counted(newAgent(t, doc(t, text), opts).Notices)
		maps.DeleteFunc(got, func(pointer string, _ int) bool {
			return pointer != "/agent/instructions" && pointer != "/agent/io/format"
		})
		if !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", kind, got, want)
		}
	}
}

// counted is how many notices there are of each place.
func counted(ps []aaif.Problem) map[string]int {
	m := make(map[string]int)
	for _, p := range ps {
		m[p.Pointer]++
	}
	return m
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	fake := modeltest.New()
	none := agents.Options{}
	for name, c := range map[string]struct {
		agent string
		opts  agents.Options
		want  string // part of the error
	}{
		"model is silent":    {``, none, "--exec"},
		"unknown provider":   {`"model": {"provider": "anthropic", "preferred": "m"}`, none, "anthropic cannot be reached"},
		"builtin what":       {`"model": {"provider": "custom", "provider_id": "builtin", "preferred": "gpt"}`, none, `"echo", "script" or "filler"`},
		"window too small":   {`"model": {"provider": "custom", "provider_id": "builtin", "preferred": "echo", "min_context_tokens": 9000}`, agents.Options{ContextTokens: 8000}, "its context window has 8000 tokens, and min_context_tokens is 9000"},
		"a window of Go's":   {`"model": {"min_context_tokens": 9000}`, agents.Options{ContextTokens: 8000, Model: fake}, "its context window has 8000 tokens"},
		"no script":          {`"model": {"provider": "custom", "provider_id": "builtin", "preferred": "script"}`, none, "script"},
		"bad script":         {`"model": {"provider": "custom", "provider_id": "builtin", "preferred": "script", "params": {"extended": {"script": [{"sing": 1}]}}}`, none, "turn 1"},
		"unknown function":   {echoModel + `, "tools": [{"name": "look", "description": "Looks."}]`, agents.Options{Tools: registry(t, "lint", "fmt")}, "no function is named look: registered are fmt, lint: worker --tool look=COMMAND gives it a program"},
		"no functions":       {echoModel + `, "tools": [{"name": "look", "description": "Looks."}]`, none, "none is registered"},
		"bad tool schema":    {echoModel + `, "tools": [{"name": "lint", "description": "Lints.", "parameters_schema": {"$ref": "file:///etc/passwd"}}]`, agents.Options{Tools: registry(t, "lint")}, "/agent/tools/0"},
		"bad input schema":   {echoModel + `, "io": {"input_schema": {"type": "objekt"}}`, none, "/agent/io"},
		"capability, strict": {echoModel + `, "required_capabilities": ["memory.vector"], "compliance": {"safety_level": "strict", "pii_handling": "none"}`, none, "memory.vector"},
		"binding, strict":    {echoModel + `, "compliance": {"safety_level": "strict", "audit_log": true, "pii_handling": "none"}`, none, "/agent/compliance/audit_log"},
		"approval": {echoModel + `, "compliance": {"human_in_the_loop": {"enabled": true}}, "tools": [{"name": "lint", "description": "Lints."}]`,
			agents.Options{Tools: registry(t, "lint")}, "human_in_the_loop"},
		"two workers":     {echoModel, agents.Options{Model: fake, Handler: mesh.HandlerFunc(nil)}, "only one"},
		"bad concurrency": {echoModel, agents.Options{Concurrency: -1}, "concurrency -1"},
		"bad entity":      {echoModel, agents.Options{As: "nobody"}, "nobody"},
		"no such folder":  {echoModel, agents.Options{IntentsDir: "/no/such/folder"}, "/no/such/folder"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := agents.New(doc(t, c.agent), c.opts)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
	if _, err := agents.New(nil, none); err == nil {
		t.Error("no document: accepted")
	}
}

func TestNewReportsAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := agents.New(doc(t, `"tools": [{"name": "look", "description": "Looks."}], "io": {"output_schema": {"type": "objekt"}}`), agents.Options{As: "nobody", Concurrency: -1})
	for _, part := range []string{"nobody", "concurrency", "/agent/tools/0", "/agent/model"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s is missing in: %v", part, err)
		}
	}
}

func TestIntentsOfTheAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, schema := range map[string]string{
		"code.review.task.schema.json":   `{"type":"object","required":["path"]}`,
		"code.review.result.schema.json": `{"type":"object","required":["findings"]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(schema), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := newAgent(t, doc(t, echoModel+`, "io": {"input_schema": {"type":"object","required":["text"]}}`), agents.Options{IntentsDir: dir, RefuseUnknown: true})
	w := newWorld(t)
	w.host(a)
	var list intents.CapabilityListResult
	if _, err := w.node.Query(t.Context(), a.Entity, intents.CapabilityList, intents.CapabilityListTask{}, &list); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"agent.test_agent.run", "code.review", "agent.ask"} {
		if !slices.Contains(list.Intents, want) {
			t.Errorf("%s is missing in %v", want, list.Intents)
		}
	}
	for name, c := range map[string]struct {
		intent, payload string
		want            envelope.Code
	}{
		"its own":              {"agent.test_agent.run", `{"text":"hi"}`, ""},
		"its own, wrong":       {"agent.test_agent.run", `{}`, envelope.CodeInputSchema},
		"from the folder":      {"code.review", `{"text":"{\"findings\":[]}"}`, envelope.CodeInputSchema},
		"result of the folder": {"code.review", `{"path":"x"}`, envelope.CodeOutputSchema},
		"unknown":              {"some.thing", `{"text":"hi"}`, envelope.CodeIntentUnknown},
	} {
		got := w.send(a.Entity, c.payload, sending{intent: c.intent})
		var code envelope.Code
		if got.err != nil {
			code = got.err.Code
		}
		if code != c.want {
			t.Errorf("%s: got %+v, want %s", name, got, c.want)
		}
	}
	if text, err := w.node.Ask(t.Context(), a.Entity, "plain words"); err != nil || text != "plain words" {
		t.Errorf("ask: %q, %v", text, err)
	}
}

func TestRunIntentIsAlwaysLegal(t *testing.T) {
	t.Parallel()
	for entity, want := range map[string]string{
		"agent.invoice_chaser": "agent.invoice_chaser.run",
		"agent.größe":          "agent.gr__e.run",
		"agent.aee":            "agent.aee.run",
	} {
		if got := agents.RunIntent(entity); got != want {
			t.Errorf("%s: got %s, want %s", entity, got, want)
		}
	}
	if err := intents.CheckName(agents.RunIntent("agent." + strings.Repeat("x.", 120) + "y")); err != nil {
		t.Error(err)
	}
}
