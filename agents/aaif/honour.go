package aaif

import (
	"fmt"
	"slices"
	"strings"
)

// Supported lists what a runtime honours of an agent definition. [NotHonoured]
// reports the rest, so that no field is ignored silently.
type Supported struct {
	// Fields lists the paths that the runtime honours with any value.
	Fields []string
	// Values lists, for a path, the only values that the runtime honours, as
	// text: "sync", "false".
	Values map[string][]string
	// Protocols are the tool protocols that the runtime speaks. A tool with
	// another protocol is reported as a whole.
	Protocols Set[Protocol]
	// Providers are the model providers that the runtime reaches. Others count
	// as custom if they have a base_url.
	Providers Set[Provider]
}

// WorkerSupports returns what this project's worker honours. Add a field here
// when the worker learns to honour it.
func WorkerSupports() Supported {
	return Supported{
		Fields: []string{
			"/_comment", "/sc_standard", "/sc_version", "/agent_id", "/status", "/tags",
			"/agent/name", "/agent/version", "/agent/description", "/agent/goal", "/agent/instructions", "/agent/skills",
			"/agent/required_capabilities",
			"/agent/constraints",
			"/agent/model/provider", "/agent/model/provider_id", "/agent/model/base_url", "/agent/model/preferred",
			"/agent/model/fallbacks", "/agent/model/routing_strategy", "/agent/model/min_context_tokens",
			"/agent/model/temperature", "/agent/model/params", "/agent/model/response_format",
			"/agent/tools/*/name", "/agent/tools/*/description", "/agent/tools/*/protocol",
			"/agent/tools/*/parameters_schema", "/agent/tools/*/output_schema",
			"/agent/tools/*/cache_ttl_seconds", "/agent/tools/*/rate_limit",
			"/agent/io/input_schema", "/agent/io/output_schema", "/agent/io/streaming", "/agent/io/format",
			"/agent/runtime/timeout_seconds", "/agent/runtime/concurrency", "/agent/runtime/streaming", "/agent/runtime/environment",
			"/agent/runtime/max_retries", "/agent/runtime/retry_backoff", "/agent/runtime/async_execution", "/agent/runtime/queue",
			"/agent/compliance/safety_level", "/agent/telemetry",
			"/provenance/authored_by", "/provenance/source_platform", "/provenance/created_at", "/provenance/updated_at",
			"/provenance/license", "/provenance/sc_refs",
		},
		Values: map[string][]string{
			"/agent/io/mode":                   {"sync", "async"},
			"/agent/compliance/audit_log":      {"false"},
			"/agent/compliance/data_residency": {"global"},
			"/agent/compliance/pii_handling":   {"none", "encrypt"},
		},
		Protocols: SetOf(ProtocolFunction),
		Providers: SetOf(Providers()...),
	}
}

// With returns a Supported that also honours the given paths.
func (s Supported) With(paths ...string) Supported {
	s.Fields = append(slices.Clone(s.Fields), paths...)
	return s
}

// binding are the fields that a runtime MUST honour by the draft: a violation
// is an error.
var binding = []string{
	"/agent/constraints",
	"/agent/compliance/human_in_the_loop",
	"/agent/compliance/data_residency",
	"/agent/compliance/audit_log",
	"/agent/compliance/pii_handling",
	"/agent/runtime/timeout_seconds",
	"/agent/runtime/concurrency",
	"/agent/orchestration/max_iterations",
	"/agent/model/min_context_tokens",
}

// Unhonoured is the problem of one field that a runtime does not honour: an
// error if the draft makes the field binding, otherwise of severity otherwise.
func Unhonoured(pointer string, rule Rule, otherwise Severity, message string) Problem {
	p := Problem{Pointer: pointer, Rule: rule, Severity: otherwise, Message: message}
	if slices.Contains(binding, pointer) {
		p.Severity = SeverityError
		p = p.hint("a runtime must not drop %s", pointer)
	}
	return p
}

// NotHonoured lists every field that an agent definition uses and a runtime
// does not honour: the outermost field that covers it, such as /agent/memory
// rather than each part of it. Fields that the draft makes binding are errors,
// the rest are warnings. Extensions and comments are never listed, because they
// have no effect by definition.
//
// At safety levels strict and regulated nothing may be left out, and so the
// schema's default of pii_handling, detect, counts as if it were written. At
// the other levels a default is not reported.
//
// It returns nil for documents of another kind.
func NotHonoured(doc *Document, s Supported) []Problem {
	if doc.Kind() != KindAgent {
		return nil
	}
	h := honourCheck{Supported: s}
	h.value(doc.tree, "", "")
	if c := doc.definition.Agent.Compliance; c != nil && c.PIIHandling == "" && c.SafetyLevel.LeavesNothingOut() && !h.covered(pii) && !slices.Contains(h.Values[pii], string(PIIDetect)) {
		h.report(string(PIIDetect), pii, pii, "the schema's default, "+unhonoured(pii, string(PIIDetect)))
		h.problems[len(h.problems)-1].Hint = `write pii_handling: none if nothing of it is wanted`
	}
	if m := doc.definition.Agent.Model; m != nil && m.Provider != "" && !s.Providers.Has(m.Provider) &&
		(m.BaseURL == "" || !s.Providers.Has(ProviderCustom)) {
		h.problems = append(h.problems, warnf("/agent/model/provider", RuleNotHonoured, "provider %q cannot be reached from this runtime", m.Provider).
			hint("give the base_url of an OpenAI-compatible endpoint"))
	}
	return doc.locate(sortProblems(h.problems))
}

const (
	approval = "/agent/compliance/human_in_the_loop" // a gate that counts only if it is enabled
	pii      = "/agent/compliance/pii_handling"
)

type honourCheck struct {
	Supported
	problems []Problem
}

// value checks the value at a pointer; pattern is the pointer with "*" for array indexes.
func (h *honourCheck) value(v any, pointer, pattern string) {
	if h.covered(pattern) {
		return
	}
	if values, ok := h.Values[pattern]; ok {
		if text := fmt.Sprint(v); !slices.Contains(values, text) {
			h.report(v, pointer, pattern, unhonoured(pattern, v))
		}
		return
	}
	if gate, ok := v.(map[string]any); ok && pattern == approval && gate["enabled"] != true {
		return // no approval is required
	}
	if pattern != "" && !h.reaches(pattern) {
		h.report(v, pointer, pattern, instead(pattern))
		return
	}
	switch v := v.(type) {
	case map[string]any:
		if pattern == "/agent/tools/*" && !h.speaks(v) {
			h.report(v, pointer, pattern, fmt.Sprintf("tools of protocol %v are not offered to the model here", v["protocol"]))
			return
		}
		for name, member := range v {
			if pattern == "" && (strings.HasPrefix(name, "x-") || name == "_comment") {
				continue
			}
			// A protocol that is supported includes the endpoint and its
			// authentication. A function has neither.
			if pattern == "/agent/tools/*" && v["protocol"] != nil && v["protocol"] != string(ProtocolFunction) && (name == "endpoint" || name == "auth") {
				continue
			}
			if pattern == "/agent/tools/*" && shadowed(v, name) {
				h.report(member, child(pointer, name), child(pattern, name), "the schemas of the tools that this entry stands for count instead")
				continue
			}
			h.value(member, child(pointer, name), child(pattern, name))
		}
	case []any:
		for i, item := range v {
			h.value(item, child(pointer, i), pattern+"/*")
		}
	}
}

// shadowed reports whether a schema of an entry is overruled: the entry stands
// for tools with schemas of their own, the operations of an OpenAPI description
// or several tools of an MCP server.
func shadowed(tool map[string]any, name string) bool {
	endpoint, _ := tool["endpoint"].(string)
	switch tool["protocol"] {
	case string(ProtocolOpenAPI):
		return name == "parameters_schema"
	case string(ProtocolMCP):
		return (name == "parameters_schema" || name == "output_schema") && endpoint != "" && severalOf(endpoint)
	}
	return false
}

// severalOf reports whether an endpoint selects all tools of an MCP server, or
// those with a prefix: by the capability of mcp://server/capability, or the
// fragment of other addresses.
func severalOf(endpoint string) bool {
	_, capability, _ := strings.Cut(endpoint, "#")
	if rest, ok := strings.CutPrefix(endpoint, "mcp://"); ok {
		_, capability, _ = strings.Cut(rest, "/")
	}
	return capability == "" || strings.HasSuffix(capability, "*")
}

func (h *honourCheck) speaks(tool map[string]any) bool {
	protocol, ok := tool["protocol"].(string)
	return !ok || h.Protocols.Has(Protocol(protocol))
}

// covered reports whether a path is supported, or lies below one that is.
func (h *honourCheck) covered(pattern string) bool {
	return slices.ContainsFunc(h.Fields, func(f string) bool { return within(pattern, f) })
}

// reaches reports whether some supported path lies below a path.
func (h *honourCheck) reaches(pattern string) bool {
	if slices.ContainsFunc(h.Fields, func(f string) bool { return within(f, pattern) }) {
		return true
	}
	for f := range h.Values {
		if within(f, pattern) {
			return true
		}
	}
	return false
}

// within reports whether a path is another one or lies below it.
func within(path, above string) bool {
	rest, ok := strings.CutPrefix(path, above)
	return ok && (rest == "" || rest[0] == '/')
}

// insteads describe, by path, what the runtime does instead of honouring a
// field.
var insteads = []struct{ path, text string }{
	{"/agent/memory", "memory is not honoured yet: the agent remembers nothing from one task to the next"},
	{"/agent/context", "context sources are not honoured yet: nothing of them reaches the model"},
	{"/agent/events", "triggers are not honoured yet: the agent runs when it is sent a task"},
	{"/agent/evaluation", "evaluation is not honoured yet: no judge, no test case and no gate is run"},
	{"/agent/orchestration/subagents/*/pass_memory_keys", "memories travel with the tasks, and no agent of this runtime reads or makes any yet"},
	{"/agent/orchestration/handoff/*/pass_memory", "memories travel with the task, and no agent of this runtime reads or makes any yet"},
	{"/agent/orchestration", "this part of a team is not honoured yet"},
	{"/agent/compliance/human_in_the_loop", "approval is not honoured yet: tool calls cannot be approved"},
	{"/agent/compliance/audit_log", "the audit log is not honoured yet: none is kept"},
	{"/agent/compliance/data_residency", "data residency is not honoured yet: models are not chosen by region"},
	{"/agent/compliance/pii_handling", "this handling of personal data is not honoured yet: messages are not searched for it"},
	{"/agent/compliance", "this control is not honoured yet"},
	{"/agent/io/mode", "a list of inputs is not taken apart: each task is one input"},
	{"/agent/tools/*/endpoint", "a function has no endpoint: the operator's function is called"},
	{"/agent/tools/*/auth", "a function is sent no credential: it has its own"},
	{"/provenance/signature", "signatures of documents are not honoured yet: they are not checked"},
}

// instead is the message that a path is not honoured, with what happens
// instead.
func instead(pattern string) string {
	for _, i := range insteads {
		if within(pattern, i.path) {
			return i.text
		}
	}
	return "this is not honoured here"
}

// unhonoured is the message that a value is not honoured, with what happens
// instead.
func unhonoured(pattern string, v any) string {
	if text := instead(pattern); text != instead("") {
		return show(v) + ": " + text
	}
	return show(v) + " is not honoured here"
}

// report adds a problem about the value at a pointer. It is an error if the
// value is a binding field or contains one.
func (h *honourCheck) report(v any, pointer, pattern, message string) {
	p := warnf(pointer, RuleNotHonoured, "%s", message)
	for _, b := range binding {
		below, inside := strings.CutPrefix(b, pattern)
		if within(pattern, b) || inside && lookup(v, below) != nil {
			p.Severity = SeverityError
			p = p.hint("a runtime must not drop %s", b)
			break
		}
	}
	h.problems = append(h.problems, p)
}
