package aaif

import (
	stdjson "encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// definition parses a definition from YAML, below name and goal.
func definition(t testing.TB, agent string) *Definition {
	t.Helper()
	return definitionDoc(t, agent).Definition()
}

func definitionDoc(t testing.TB, agent string) *Document {
	t.Helper()
	text := "sc_standard: SC-006\nagent:\n  name: A\n  goal: G\n"
	for line := range strings.SplitSeq(strings.TrimSpace(agent), "\n") {
		text += "  " + line + "\n"
	}
	return mustParse(t, []byte(text), Options{Format: YAML, Kind: KindAgent})
}

// TestDefaultsAreTheSchemas walks the schema's default annotations and compares what WithDefaults fills in.
func TestDefaultsAreTheSchemas(t *testing.T) {
	doc := mustParse(t, []byte(`{"sc_standard": "SC-006", "agent": {"name": "A", "goal": "G",
		"orchestration": {"handoff": [{"condition": "", "target_agent": "b"}]},
		"tools": [{"name": "t", "description": "d", "auth": {}}], "memory": [{"scope": "task", "content": "c"}]}}`), Options{})
	before, err := json.Marshal(doc.Definition())
	if err != nil {
		t.Fatal(err)
	}
	full, err := json.Marshal(doc.Definition().WithDefaults())
	if err != nil {
		t.Fatal(err)
	}
	filled := tree(t, full)
	s := schemas[KindAgent]()
	var defaults int
	var walk func(node any, pointer string)
	walk = func(node any, pointer string) {
		schema := s.resolve(node)
		if own, ok := node.(map[string]any)["default"]; ok {
			schema = map[string]any{"default": own} // beside a $ref
		}
		if want, ok := schema["default"]; ok {
			defaults++
			if got := lookup(filled, pointer); !reflect.DeepEqual(got, want) {
				t.Errorf("%s is %v, the schema's default is %v", pointer, got, want)
			}
		}
		if items, ok := schema["items"].(map[string]any); ok {
			walk(items, pointer+"/0")
		}
		props, _ := schema["properties"].(map[string]any)
		for name, sub := range props {
			if sub, ok := sub.(map[string]any); ok {
				walk(sub, pointer+"/"+name)
			}
		}
	}
	walk(s.source, "")
	if defaults < 25 {
		t.Errorf("only %d defaults seen", defaults)
	}
	after, err := json.Marshal(doc.Definition())
	if err != nil || string(after) != string(before) {
		t.Errorf("the definition itself has changed: %s (%v)", after, err)
	}
}

func TestDefaultsKeepWhatIsThere(t *testing.T) {
	doc := mustParse(t, fullDocuments(t)["agent.json"], Options{})
	full := doc.Definition()
	got, want := full.WithDefaults(), full.Clone()
	want.Agent.Orchestration.Handoff[1].PassContext = new(true)
	want.Agent.Orchestration.Handoff[1].PassMemory = new(false)
	diff(t, "nothing but the second handoff lacked a value", got, want)
	got.Agent.Tools[0].Name = "changed"
	if full.Agent.Tools[0].Name == "changed" {
		t.Error("the copy is not deep")
	}
}

func TestEntityName(t *testing.T) {
	for name, want := range map[string]string{
		"Invoice Chaser": "agent.invoice_chaser", "Code Reviewer": "agent.code_reviewer",
		"InvoiceChaser": "agent.invoice_chaser", "invoiceChaser": "agent.invoice_chaser", "invoice_chaser": "agent.invoice_chaser", "invoice-chaser": "agent.invoice_chaser",
		"HTTPServer": "agent.http_server", "GPT4 Helper": "agent.gpt4_helper", "v2Agent": "agent.v2_agent", "ABC": "agent.abc", "A": "agent.a", "aB": "agent.a_b",
		"Bob's Agent": "agent.bobs_agent", "Bob’s Agent": "agent.bobs_agent", "R&D": "agent.r_d", "C++ Reviewer": "agent.c_reviewer", "  spaced   out  ": "agent.spaced_out",
		"agent.reviewer": "agent.agent_reviewer", "a.b.c": "agent.a_b_c", "wild * > card": "agent.wild_card", "007": "agent.007", "2nd Line": "agent.2nd_line", "__x__": "agent.x",
		"Café Größe": "agent.cafe_grosse", "Łódź Øl Æon": "agent.lodz_ol_aeon", "Cafe\u0301": "agent.cafe", "ﬁnance": "agent.finance", "Ⅳ": "agent.iv", "A🚀B": "agent.a_b",
		"ÉCOLE Normale": "agent.ecole_normale",
	} {
		got, err := EntityName(name)
		if err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"", "   ", "!!!", "🚀", "请款", "Агент", "A \u0430", strings.Repeat("a", 65)} {
		if got, err := EntityName(name); err == nil || !strings.Contains(err.Error(), "agent name") {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
}

func TestLevels(t *testing.T) {
	const (
		tooled      = "tools:\n- {name: t, description: d, parameters_schema: {type: object}}\n"
		constraints = "constraints: [be nice]\n"
		multi       = "orchestration: {role: router, handoff: [{condition: {lang: never}, target_agent: b}]}\n"
		observable  = "evaluation: {metrics: [{name: relevance, threshold: 0.5}]}\n"
		compliance  = "compliance: {safety_level: strict, audit_log: true}\n"
		stateful    = "required_capabilities: [state.checkpoint]\n"
	)
	tests := []struct {
		name, agent string
		signed      bool
		reached     string // of the seven, in order
		next        Level
		missing     string // messages of the next level
	}{
		{"nothing but name and goal", "", false, "Core", LevelTooled, "no tool with a parameters_schema"},
		{"a tool without a schema", "tools: [{name: t, description: d}]", false, "Core", LevelTooled, "no tool with a parameters_schema"},
		{"constraints alone", constraints, false, "Core", LevelTooled, "no tool with a parameters_schema"},
		{"a tool", tooled, false, "Core Tooled", LevelPortable, "no constraints"},
		{"portable", tooled + constraints, false, "Core Tooled Portable", LevelMultiAgent, "no orchestration.role; neither a subagent nor a handoff"},
		{"a tool that leads nowhere", "tools:\n- {name: t, description: d, protocol: http, parameters_schema: {}}\n" + constraints, false, "Core Tooled", LevelPortable, `tool "t": protocol http without an endpoint`},
		{"an endpoint without a scheme", "tools:\n- {name: t, description: d, protocol: mcp, endpoint: files, parameters_schema: {}}\n" + constraints, false, "Core Tooled", LevelPortable, `tool "t": the endpoint is no URI`},
		{"endpoints that lead somewhere", "tools:\n- {name: t, description: d, protocol: http, endpoint: 'https://h/{id}', parameters_schema: {}}\n- {name: u, description: d, protocol: openapi, endpoint: spec.yaml}\n- {name: v, description: d, protocol: mcp, endpoint: 'mcp://a/b'}\n" + constraints, false, "Core Tooled Portable", LevelMultiAgent, "no orchestration.role; neither a subagent nor a handoff"},
		{"endpoints with a method and with a selection", "tools:\n- {name: t, description: d, protocol: http, endpoint: 'GET https://h/{id}?q={q}', parameters_schema: {}}\n- {name: u, description: d, protocol: http, endpoint: ' delete  https://h/x ', parameters_schema: {}}\n- {name: v, description: d, protocol: openapi, endpoint: 'https://h/a.json#listPets,GET /pets/{id}'}\n" + constraints, false, "Core Tooled Portable", LevelMultiAgent, "no orchestration.role; neither a subagent nor a handoff"},
		{"a method that is none", "tools:\n- {name: t, description: d, protocol: http, endpoint: 'FETCH https://h/', parameters_schema: {}}\n" + constraints, false, "Core Tooled", LevelPortable, `tool "t": the endpoint is no URI`},
		{"a method without a URI", "tools:\n- {name: t, description: d, protocol: http, endpoint: 'GET /orders', parameters_schema: {}}\n" + constraints, false, "Core Tooled", LevelPortable, `tool "t": the endpoint is no URI`},
		{"a method and more than a URI", "tools:\n- {name: t, description: d, protocol: http, endpoint: 'GET https://h/ x', parameters_schema: {}}\n" + constraints, false, "Core Tooled", LevelPortable, `tool "t": the endpoint is no URI`},
		{"a method of no HTTP", "tools:\n- {name: t, description: d, protocol: mcp, endpoint: 'GET https://h/', parameters_schema: {}}\n" + constraints, false, "Core Tooled", LevelPortable, `tool "t": the endpoint is no URI`},
		{"a role alone", tooled + constraints + "orchestration: {role: worker}", false, "Core Tooled Portable", LevelMultiAgent, "neither a subagent nor a handoff"},
		{"multi-agent", tooled + constraints + multi, false, "Core Tooled Portable Multi-agent", LevelObservable, "no evaluation metric with a threshold"},
		{"multi-agent without tools", constraints + multi, false, "Core", LevelTooled, "no tool with a parameters_schema"},
		{"observable, not multi-agent", tooled + constraints + observable, false, "Core Tooled Portable Observable", LevelEnterprise, "no compliance.safety_level; compliance.audit_log is not true; no provenance.signature"},
		{"tracing switched off", tooled + constraints + observable + "telemetry: {tracing: false}", false, "Core Tooled Portable", LevelMultiAgent, "no orchestration.role; neither a subagent nor a handoff"},
		{"a metric without a threshold", tooled + constraints + "evaluation: {metrics: [{name: relevance}]}", false, "Core Tooled Portable", LevelMultiAgent, "no orchestration.role; neither a subagent nor a handoff"},
		{"enterprise but for the signature", tooled + constraints + observable + compliance, false, "Core Tooled Portable Observable", LevelEnterprise, "no provenance.signature"},
		{"tracing switched on", tooled + constraints + observable + "telemetry: {tracing: true}", false, "Core Tooled Portable Observable", LevelEnterprise, "no compliance.safety_level; compliance.audit_log is not true; no provenance.signature"},
		{"no audit log", tooled + constraints + observable + "compliance: {safety_level: strict, audit_log: false}\n", true, "Core Tooled Portable Observable", LevelEnterprise, "compliance.audit_log is not true"},
		{"another capability", tooled + constraints + observable + compliance + "required_capabilities: [state.restore]\n", true, "Core Tooled Portable Observable Enterprise", LevelStateful, "required_capabilities lacks state.checkpoint"},
		{"enterprise", tooled + constraints + observable + compliance, true, "Core Tooled Portable Observable Enterprise", LevelStateful, "required_capabilities lacks state.checkpoint"},
		{"stateful", tooled + constraints + observable + compliance + stateful, true, "Core Tooled Portable Observable Enterprise Stateful", "", ""},
		{"stateful and multi-agent", tooled + constraints + multi + observable + compliance + stateful, true, "Core Tooled Portable Multi-agent Observable Enterprise Stateful", "", ""},
		{"checkpoints without enterprise", tooled + constraints + stateful, false, "Core Tooled Portable", LevelMultiAgent, "no orchestration.role; neither a subagent nor a handoff"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := definition(t, tt.agent)
			if tt.signed {
				d.Provenance = &Provenance{Signature: "c2ln"}
			}
			var reached []string
			for _, s := range d.Levels() {
				if s.Reached != (len(s.Missing) == 0) {
					t.Errorf("%s: reached %v, missing %v", s.Level, s.Reached, s.Missing)
				}
				if s.Reached {
					reached = append(reached, string(s.Level))
				}
			}
			diff(t, "reached", strings.Join(reached, " "), tt.reached)
			level, next := d.Level()
			diff(t, "highest", string(level), reached[len(reached)-1])
			var messages []string
			for _, p := range next.Missing {
				messages = append(messages, p.Message)
			}
			diff(t, "next", next.Level, tt.next)
			diff(t, "missing", strings.Join(messages, "; "), tt.missing)
		})
	}
	d := definition(t, tooled+constraints+observable+compliance)
	if d.Provenance = (&Provenance{AuthoredBy: "ann"}); !slices.ContainsFunc(d.Levels(), func(s LevelStatus) bool { return s.Level == LevelEnterprise && len(s.Missing) == 1 }) {
		t.Error("a provenance without a signature is enough")
	}
	if level, next := new(Definition).Level(); level != LevelNone || next.Level != LevelCore || len(next.Missing) != 2 {
		t.Errorf("%s %v", level, next)
	}
}

func TestNotHonoured(t *testing.T) {
	for _, tt := range []struct{ name, agent, want string }{
		{"nothing special", "instructions: be brief\nconstraints: [a]\nio: {streaming: true, mode: sync, input_schema: {type: object}}\nruntime: {timeout_seconds: 5, concurrency: 2}", ""},
		{"a function tool", "tools: [{name: t, description: d, parameters_schema: {}}, {name: u, description: d, protocol: function}]", ""},
		{"the built-in model", "model: {provider: custom, provider_id: builtin, preferred: script, params: {extended: {turns: []}}}", ""},
		{"a compatible provider", "model: {provider: ollama, preferred: m, temperature: 0}", ""},
		{"another provider behind a gateway", "model: {provider: anthropic, base_url: 'https://llm.example'}", ""},
		{"another provider", "model: {provider: anthropic}", ""},
		{"routing", "model: {provider: openai, routing_strategy: cost, min_context_tokens: 5, fallbacks: [{provider: openai, model: m}]}", ""},
		{"the preferred first", "model: {provider: openai, routing_strategy: preferred_first}", ""},
		{"whole blocks", "memory: [{scope: task, content: c}]\ncontext: [{type: text, value: v}]\nevents: {on_start: f}\nevaluation: {judge_model: m}\ntelemetry: {tracing: true}\norchestration: {role: worker}",
			"warning /agent/context, warning /agent/evaluation, warning /agent/events, warning /agent/memory, warning /agent/orchestration"},
		{"a loop guard", "orchestration: {max_iterations: 3}", "error /agent/orchestration"},
		{"tools of other protocols", "tools: [{name: t, description: d, protocol: http, endpoint: 'https://h', timeout_seconds: 5}, {name: u, description: d}, {name: v, description: d, protocol: mcp, endpoint: 'mcp://a/b'}]",
			"warning /agent/tools/0, warning /agent/tools/2"},
		{"a tool's limits", "tools: [{name: t, description: d, timeout_seconds: 5, auth: {type: none}}]", "warning /agent/tools/0/auth, warning /agent/tools/0/timeout_seconds"},
		{"modes and retries", "io: {mode: batch, format: structured}\nruntime: {max_retries: 3, retry_backoff: fixed, async_execution: true, queue: q}",
			"warning /agent/io/mode"},
		{"a job id", "io: {mode: async, format: markdown}", ""},
		{"a function's endpoint", "tools: [{name: t, description: d, endpoint: 'https://h', auth: {type: none}}]", "warning /agent/tools/0/auth, warning /agent/tools/0/endpoint"},
		{"that of one that says so", "tools: [{name: t, description: d, protocol: function, endpoint: 'https://h', auth: {type: none}}]", "warning /agent/tools/0/auth, warning /agent/tools/0/endpoint"},
		{"no retries", "runtime: {max_retries: 0, async_execution: false}", ""},
		{"gates", "compliance: {safety_level: strict, audit_log: true, data_residency: EU, pii_handling: reject, human_in_the_loop: {enabled: true, timeout_seconds: 5}}",
			"error /agent/compliance/audit_log, error /agent/compliance/data_residency, error /agent/compliance/human_in_the_loop, error /agent/compliance/pii_handling"},
		{"gates that stand open", "compliance: {safety_level: strict, audit_log: false, data_residency: global, pii_handling: none, human_in_the_loop: {enabled: false, timeout_seconds: 5}}", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, p := range NotHonoured(definitionDoc(t, tt.agent), WorkerSupports()) {
				got = append(got, string(p.Severity)+" "+p.Pointer)
				if p.Rule != RuleNotHonoured || p.Line == 0 {
					t.Errorf("%+v", p)
				}
			}
			diff(t, "not honoured", strings.Join(got, ", "), tt.want)
		})
	}
	doc := mustParse(t, []byte(`{"sc_standard": "SC-006", "_comment": "c", "x-a": {"b": 1}, "provenance": {"signature": "c2ln", "license": "MIT"}, "agent": {"name": "A", "goal": "G"}}`), Options{})
	problems := NotHonoured(doc, WorkerSupports())
	if len(problems) != 1 || problems[0].Pointer != "/provenance/signature" {
		t.Errorf("%v", problems)
	}
	one := WorkerSupports()
	one.Providers = SetOf(ProviderOllama)
	if problems := NotHonoured(definitionDoc(t, "model: {provider: groq}"), one); len(problems) != 1 || problems[0].Pointer != "/agent/model/provider" {
		t.Errorf("a provider out of reach: %v", problems)
	}
	if problems := NotHonoured(doc, WorkerSupports().With("/provenance")); len(problems) != 0 {
		t.Errorf("%v", problems)
	}
}

// The schemas of an entry that stands for tools with their own schemas are
// ignored and reported.
func TestSchemasThatDoNotCountAreReported(t *testing.T) {
	const both, parameters = "/agent/tools/0/output_schema /agent/tools/0/parameters_schema", "/agent/tools/0/parameters_schema"
	speaks := WorkerSupports()
	speaks.Protocols = SetOf(Protocols()...)
	for entry, want := range map[string]string{
		"protocol: openapi, endpoint: 'https://h/openapi.json'":   parameters,
		"protocol: openapi, endpoint: 'https://h/openapi.json#a'": parameters,
		"protocol: http, endpoint: 'https://h/'":                  "",
		"protocol: mcp, endpoint: 'mcp://a/b'":                    "",
		"protocol: mcp, endpoint: 'https://h/mcp#b'":              "",
		"protocol: mcp, endpoint: 'mcp://a'":                      both,
		"protocol: mcp, endpoint: 'mcp://a/'":                     both,
		"protocol: mcp, endpoint: 'mcp://a/b_*'":                  both,
		"protocol: mcp, endpoint: 'https://h/mcp'":                both,
		"protocol: mcp, endpoint: 'stdio:server --x#*'":           both,
	} {
		var got []string
		for _, p := range NotHonoured(definitionDoc(t, "tools: [{name: t, description: d, parameters_schema: {}, output_schema: {}, "+entry+"}]"), speaks) {
			got = append(got, p.Pointer)
		}
		diff(t, entry, strings.Join(got, " "), want)
	}
}

// TestEveryFieldIsHonouredOrReported: a worker that honours nothing reports everything, one that honours all
// reports nothing, and no field falls between.
func TestEveryFieldIsHonouredOrReported(t *testing.T) {
	doc := mustParse(t, fullDocuments(t)["agent.json"], Options{})
	var got []string
	for _, p := range NotHonoured(doc, Supported{}) {
		got = append(got, p.Pointer)
	}
	diff(t, "nothing honoured", got, []string{"/agent", "/agent/model/provider", "/agent_id", "/provenance", "/sc_standard", "/sc_version", "/status", "/tags"})
	everything := Supported{Fields: []string{""}, Providers: SetOf(Providers()...)}
	if ps := NotHonoured(doc, everything); len(ps) != 0 {
		t.Errorf("%v", ps)
	}
}

func TestNegotiate(t *testing.T) {
	have := Offer{
		Capabilities: SetOf(CapToolFunction, CapTelemetryOTel, "memory.in_memory", "compliance.human_in_the_loop"),
		Languages:    SetOf(LangCEL),
	}
	tests := []struct {
		need      Need
		safety    SafetyLevel
		action    Action
		lacking   string
		errorText string
	}{
		{Need{}, SafetyRegulated, ActionAccept, "", ""},
		{Need{Capabilities: []string{CapToolFunction, CapConditionStructured}}, SafetyStrict, ActionAccept, "", ""},
		{Need{Capabilities: []string{"telemetry.otel_traces", CapHumanInTheLoop, "memory.in_memory"}}, SafetyStrict, ActionAccept, "", ""},
		{Need{Languages: map[Language]string{LangCEL: "/a", LangAlways: "/b", LangNever: "/c"}}, SafetyStrict, ActionAccept, "", ""},
		{Need{Capabilities: []string{CapToolMCP}}, SafetyMinimal, ActionSkip, "tool.mcp", ""},
		{Need{Capabilities: []string{CapToolMCP}}, SafetyStandard, ActionDisable, "tool.mcp", ""},
		{Need{Capabilities: []string{CapToolMCP}}, "", ActionDisable, "tool.mcp", ""},
		{Need{Capabilities: []string{CapToolMCP, CapToolHTTP}}, SafetyStrict, ActionReject, "tool.http tool.mcp", "safety level strict: this runtime lacks capabilities tool.http, tool.mcp"},
		{Need{Capabilities: []string{CapToolMCP}, Languages: map[Language]string{LangJSONPath: "/a"}}, SafetyRegulated, ActionRejectAndAudit, "tool.mcp jsonpath",
			"safety level regulated: this runtime lacks capabilities tool.mcp and condition languages jsonpath"},
		{Need{Languages: map[Language]string{LangJSONPath: "/a"}}, SafetyMinimal, ActionSkip, "jsonpath", ""},
		{Need{Languages: map[Language]string{LangJSONPath: "/a", LangJMESPath: "/b"}}, SafetyStrict, ActionReject, "jmespath jsonpath", "safety level strict: this runtime lacks condition languages jmespath, jsonpath"},
		{Need{Capabilities: []string{"toString"}}, "paranoid", ActionRejectAndAudit, "toString", "safety level paranoid: this runtime lacks capabilities toString"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %v", tt.safety, tt.need), func(t *testing.T) {
			n := Negotiate(tt.need, have, tt.safety)
			diff(t, "action", n.Action, tt.action)
			diff(t, "lacking", strings.Join(slices.Concat(n.Unsatisfied, stringsOf(n.Unevaluated)), " "), tt.lacking)
			diff(t, "accepts", n.Err() == nil, n.Action.Accepts())
			if err := n.Err(); err != nil {
				diff(t, "error", err.Error(), tt.errorText)
			}
			problems := n.Problems()
			diff(t, "problems", len(problems), len(n.Unsatisfied)+len(n.Unevaluated))
			for _, p := range problems {
				if (p.Severity == SeverityError) == n.Action.Accepts() {
					t.Errorf("%v", p)
				}
			}
		})
	}
}

func TestDefinitionNegotiates(t *testing.T) {
	d := definition(t, `required_capabilities: [tool.function]
orchestration:
  subagents:
    - {ref: 'urn:a', when: {lang: jsonpath, expr: $.a}}
    - {ref: 'urn:b', when: in words}
    - {ref: 'urn:c', when: {lang: jsonpath, expr: $.c}}
  handoff: [{condition: {lang: never}, target_agent: a}]
events: {triggers: [{type: manual, filter: {lang: cel, expr: a}}]}
compliance: {safety_level: strict, human_in_the_loop: {trigger: {lang: jsonlogic, expr: {}}}}`)
	need := d.Needs()
	diff(t, "languages", need.Languages, map[Language]string{
		LangJSONPath:  "/agent/orchestration/subagents/0/when",
		LangNever:     "/agent/orchestration/handoff/0/condition",
		LangCEL:       "/agent/events/triggers/0/filter",
		LangJSONLogic: "/agent/compliance/human_in_the_loop/trigger",
	})
	n := d.Negotiate(Offer{Capabilities: SetOf(CapToolFunction), Languages: SetOf(LangCEL, LangJSONLogic)})
	if n.Action != ActionReject || len(n.Problems()) != 1 || n.Problems()[0].Pointer != "/agent/orchestration/subagents/0/when" {
		t.Errorf("%+v", n)
	}
	if n := definition(t, "required_capabilities: [tool.mcp]").Negotiate(Offer{}); n.Action != ActionDisable || n.Safety != SafetyStandard {
		t.Errorf("%+v", n)
	}
}

func TestManifestCarriesAnOffer(t *testing.T) {
	config := PlatformConfig{
		Name: "aeemesh", Version: "0.1.0", Level: LevelTooled,
		Offer: Offer{
			Capabilities: SetOf(append(Capabilities(), "memory.in_memory", "auth.bearer", "tool.parallel_calls", "acme.magic")...),
			Languages:    SetOf(LangCEL, LangAlways),
		},
		Providers: []Provider{ProviderOpenAI, ProviderCustom}, RoutingStrategies: []RoutingStrategy{RouteCost},
		Vaults: []VaultProvider{VaultHashiCorp, VaultCustom}, IssuedAt: time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC),
	}
	doc, err := New(config.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	if ps := doc.Lint(); len(ps) != 0 {
		t.Errorf("%v", ps)
	}
	p := doc.Manifest().Platform
	diff(t, "issued", p.IssuedAt, "2026-11-20T09:30:00Z")
	diff(t, "languages", p.Capabilities.Orchestration.ConditionLanguages, []Language{LangAlways, LangCEL})
	for name, flag := range p.Capabilities.flags() {
		if has := *flag != nil && **flag; has != config.Offer.Offers(name) {
			t.Errorf("%s: the manifest says %v", name, has)
		}
	}
	diff(t, "vaults", p.Capabilities.Auth.Vault.Providers, []string{"hashicorp_vault"})
	diff(t, "what has no field", string(doc.Manifest().Extensions), `{"x-aeemesh-capabilities":["acme.magic","compliance.data_residency","io.async","io.batch","io.streaming"]}`)

	text, err := json.Marshal(PlatformConfig{Name: "n", Version: "1", Offer: Offer{Capabilities: SetOf(CapToolFunction, CapStateCheckpoint)}}.Manifest())
	want := `{"sc_standard":"SC-006","sc_version":"3.4.0","platform":{"name":"n","version":"1","aaif_conformance_level":"Core","aaif_versions_supported":["3.4.0"],"capabilities":{"tool":{"function":true}}},"x-aeemesh-capabilities":["state.checkpoint"]}`
	if err != nil || string(text) != want {
		t.Errorf("%v\n got %s\nwant %s", err, text, want)
	}
}

func TestCondition(t *testing.T) {
	for text, want := range map[string]Condition{
		`"when it rains"`:   {Hint: "when it rains"},
		`""`:                {},
		`{"lang":"always"}`: {Lang: LangAlways},
		`{"lang":"cel","expr":"a < 1","nl":"a is small"}`:      {Lang: LangCEL, Expr: stdjson.RawMessage(`"a < 1"`), NL: "a is small"},
		`{"lang":"jsonlogic","expr":{"==":[1.0,{"var":"x"}]}}`: {Lang: LangJSONLogic, Expr: stdjson.RawMessage(`{"==":[1.0,{"var":"x"}]}`)},
		`{"lang":"cel","expr":true}`:                           {Lang: LangCEL, Expr: stdjson.RawMessage(`true`)},
	} {
		var c Condition
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		diff(t, text, c, want)
		out, err := json.Marshal(&c)
		if err != nil || string(out) != text {
			t.Errorf("%s comes back as %s, %v", text, out, err)
		}
		if out, err := json.Marshal(Handoff{Condition: c, TargetAgent: "a"}); err != nil || !strings.Contains(string(out), text) {
			t.Errorf("%s in a value comes back as %s, %v", text, out, err)
		}
	}
	for _, text := range []string{`5`, `null`, `[]`, `true`, `{"lang":5}`, `{}`, `{"expr":{}}`, `{"lang":""}`, `{"lang":"cel","expr":"x","more":1}`, `{`, ``} {
		var c Condition
		if err := json.Unmarshal([]byte(text), &c); err == nil {
			t.Errorf("%s is a condition: %+v", text, c)
		}
	}
	diff(t, "text", []string{
		(&Condition{Lang: LangCEL, Expr: stdjson.RawMessage(`"a \u003c 1"`)}).Text(),
		(&Condition{Lang: LangJSONLogic, Expr: stdjson.RawMessage(`{"a":1}`)}).Text(),
		(&Condition{Lang: LangAlways}).Text(),
	}, []string{"a < 1", `{"a":1}`, ""})
}

func TestNumber(t *testing.T) {
	for n, want := range map[Number]struct {
		i int64
		f float64
		s time.Duration
	}{
		"":                 {0, 0, 0},
		"30":               {30, 30, 30 * time.Second},
		"30.0":             {30, 30, 30 * time.Second},
		"3e1":              {30, 30, 30 * time.Second},
		"1.5":              {1, 1.5, 1500 * time.Millisecond},
		"-7":               {-7, -7, -7 * time.Second},
		"1e300":            {math.MaxInt64, 1e300, math.MaxInt64},
		"-1e300":           {math.MinInt64, -1e300, math.MinInt64},
		"9007199254740993": {9007199254740993, 9007199254740992, math.MaxInt64},
	} {
		if got := n.Int64(); got != want.i {
			t.Errorf("%q as an integer: %d", n, got)
		}
		if got := n.Float64(); got != want.f {
			t.Errorf("%q as a double: %g", n, got)
		}
		if got := n.Seconds(); got != want.s {
			t.Errorf("%q as a duration: %d", n, got)
		}
		if n.IsSet() != (n != "") {
			t.Errorf("%q", n)
		}
	}
	diff(t, "constructor", Int(-5), Number("-5"))
	var n Number
	if err := json.Unmarshal([]byte(`"5"`), &n); err == nil {
		t.Error("a string is a number")
	}
}

// A runtime's level follows from what it honours.
func TestLevelOfARuntime(t *testing.T) {
	t.Parallel()
	all := WorkerSupports()
	all.Protocols = SetOf(Protocols()...)
	team := all.With("/agent/orchestration/role", "/agent/orchestration/subagents", "/agent/orchestration/handoff")
	audited := team.With("/agent/evaluation", "/agent/compliance/audit_log", "/provenance/signature")
	state := Offer{Capabilities: SetOf(CapStateCheckpoint, CapStateRestore)}
	for name, tt := range map[string]struct {
		s    Supported
		have Offer
		want Level
	}{
		"nothing":                  {Supported{}, state, LevelNone},
		"functions alone":          {WorkerSupports(), state, LevelTooled},
		"all protocols":            {all, state, LevelPortable},
		"teams":                    {team, state, LevelMultiAgent},
		"gates":                    {team.With("/agent/evaluation"), state, LevelObservable},
		"audit and signatures":     {audited, Offer{}, LevelEnterprise},
		"checkpoints, no restore":  {audited, Offer{Capabilities: SetOf(CapStateCheckpoint)}, LevelEnterprise},
		"and checkpoints":          {audited, state, LevelStateful},
		"audit without evaluation": {all.With("/agent/compliance/audit_log", "/provenance/signature"), state, LevelPortable},
	} {
		if got := tt.s.Level(tt.have); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
