package aaif

import (
	"fmt"
	"slices"
)

func (l *linter) condition(pointer string, c *Condition) {
	if c.IsString() {
		l.warn(pointer, RuleStringCondition, `write {"lang": …, "expr": …}; the words can stay as "nl"`,
			"a condition in words is a hint that each runtime reads differently")
		return
	}
	kind := byte(0)
	if len(c.Expr) > 0 {
		kind = c.Expr[0]
	}
	switch c.Lang {
	case LangAlways, LangNever:
		if kind != 0 {
			l.warn(pointer+"/expr", RuleIgnoredField, "delete it", "%s takes no expression", c.Lang)
		}
	case LangJSONLogic:
		if kind == '"' {
			l.warn(pointer+"/expr", RuleFormat, "write the rule as an object", "a jsonlogic rule is an object, not text")
		}
	default:
		if kind != '"' {
			l.warn(pointer+"/expr", RuleFormat, "write it in quotes", "a %s expression is text", c.Lang)
		}
	}
}

func (l *linter) model(a *Agent) {
	m := a.Model
	if m == nil {
		return
	}
	l.uri("/agent/model/base_url", m.BaseURL)
	if m.ProviderID != "" && m.Provider != ProviderCustom {
		l.warn("/agent/model/provider_id", RuleIgnoredField, `set provider to "custom", or delete provider_id`,
			"provider_id has no effect: provider is %q", m.Provider)
	}
	if m.Provider == "" && m.BaseURL == "" && (m.Preferred != "" || len(m.Fallbacks) > 0) {
		l.warn("/agent/model", RuleIncomplete, "give provider", "the provider of the model is not named")
	}
	if m.Provider != "" && m.Preferred == "" {
		l.warn("/agent/model", RuleIncomplete, "give preferred", "the model of the provider is not named")
	}
	if m.Provider == ProviderCustom && m.ProviderID != string(ProviderCustom) && slices.Contains(Providers(), Provider(m.ProviderID)) {
		l.warn("/agent/model/provider_id", RuleRegistry, fmt.Sprintf("write provider %q", m.ProviderID), "%q is a standard provider", m.ProviderID)
	}
	for i, f := range m.Fallbacks {
		if slices.Contains(Providers(), Provider(f.Provider)) || provisionalProvider(f.Provider) {
			continue
		}
		hint := ""
		if near := Nearest(f.Provider, stringsOf(Providers())); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		l.warn(child("/agent/model/fallbacks", i)+"/provider", RuleRegistry, hint, "provider %s is not in the registry", show(f.Provider))
	}
	if f := m.ResponseFormat; f != "" && a.IO != nil && a.IO.Format != "" && !agree(f, a.IO.Format) {
		l.warn("/agent/io/format", RuleIgnoredField, "delete one of them, or make them agree", "response_format %q wins over io.format %q", f, a.IO.Format)
	}
	if m.ResponseFormat == ResponseJSONSchema && (a.IO == nil || a.IO.OutputSchema == nil) {
		l.warn("/agent/model/response_format", RuleIncomplete, "give io.output_schema", "json_schema needs a schema to enforce")
	}
}

// io warns of contradicting fields of io and runtime, and of a structured format without a schema.
func (l *linter) io(a *Agent) {
	io, r := a.IO, a.Runtime
	if io.Format == IOStructured && io.OutputSchema == nil && (a.Model == nil || a.Model.ResponseFormat == "") {
		l.warn("/agent/io/format", RuleIncomplete, "give io.output_schema", "structured needs a schema to enforce")
	}
	if r == nil {
		return
	}
	const hint = "delete one of them, or make them agree"
	switch {
	case isTrue(io.Streaming) && isFalse(r.Streaming):
		l.warn("/agent/io/streaming", RuleIgnoredField, hint, "runtime.streaming is false: nothing is streamed")
	case isFalse(io.Streaming) && isTrue(r.Streaming):
		l.warn("/agent/runtime/streaming", RuleIgnoredField, hint, "io.streaming is false: nothing is streamed")
	}
	switch {
	case io.Mode == ModeSync && isTrue(r.AsyncExecution):
		l.warn("/agent/io/mode", RuleIgnoredField, hint, "runtime.async_execution is true: tasks are answered at once, with a job_id")
	case io.Mode == ModeAsync && isFalse(r.AsyncExecution):
		l.warn("/agent/runtime/async_execution", RuleIgnoredField, hint, "io.mode is async: tasks are answered at once, with a job_id")
	}
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

// agree reports whether response_format and io.format mean the same form of
// answers.
func agree(f ResponseFormat, io IOFormat) bool {
	switch io {
	case IOStructured, IOJSON:
		return f == ResponseJSON || f == ResponseJSONSchema
	}
	return string(f) == string(io)
}

func (l *linter) context(at string, c *Context) {
	if c.Type == ContextURL || c.Type == ContextSchemaRef {
		l.uri(at+"/value", c.Value)
	}
	if c.RefreshTTLSeconds.IsSet() && c.Type != ContextURL {
		l.warn(at+"/refresh_ttl_seconds", RuleIgnoredField, "delete it", "only a url is fetched again")
	}
}

func (l *linter) tools(tools []Tool) {
	names := make(map[string]bool)
	for i := range tools {
		t, at := &tools[i], child("/agent/tools", i)
		if names[t.Name] {
			l.warn(at+"/name", RuleReference, "give each tool a name of its own", "another tool is called %q too: the model cannot tell them apart", t.Name)
		}
		names[t.Name] = true
		l.subschema(at+"/parameters_schema", t.ParametersSchema)
		l.subschema(at+"/output_schema", t.OutputSchema)
		if t.ParametersSchema == nil && t.EffectiveProtocol() != ProtocolMCP && t.EffectiveProtocol() != ProtocolOpenAPI {
			l.warn(at, RuleIncomplete, "give parameters_schema", "the model is not told which arguments tool %q takes", t.Name)
		}
		if t.EffectiveProtocol() == ProtocolFunction && t.Endpoint != "" {
			l.warn(at+"/endpoint", RuleIgnoredField, "set protocol to mcp, http or openapi, or delete it", "a function has no endpoint")
		}
		if reason := unresolvable(t); reason != "" {
			l.warn(at, RuleIncomplete, "give an endpoint such as https://host/path or mcp://server/capability", "tool %q: %s", t.Name, reason)
		}
		if t.Auth != nil {
			l.auth(at+"/auth", t.Auth)
			if t.Auth.Type == AuthOAuth2 && t.Auth.TokenURL == "" && t.EffectiveProtocol() == ProtocolHTTP { // for other protocols the server may publish the URL
				l.warn(at+"/auth", RuleIncomplete, "give token_url", "auth type oauth2 has no token endpoint")
			}
		}
	}
}

func (l *linter) auth(at string, a *Auth) {
	none := a.Type == "" || a.Type == AuthNone
	switch {
	case a.EnvVar != "" && a.VaultRef != nil:
		l.warn(at+"/env_var", RuleIgnoredField, "keep one of them", "vault_ref wins over env_var")
	case none && (a.EnvVar != "" || a.VaultRef != nil):
		l.warn(at, RuleIgnoredField, "set type", "a credential is named, but the auth type is none")
	case !none && a.EnvVar == "" && a.VaultRef == nil && a.Type != AuthMTLS && a.Type != AuthAWSSigV4:
		l.warn(at, RuleIncomplete, "give env_var or vault_ref", "auth type %s needs a credential", a.Type)
	}
	if a.EnvVar != "" && !envVarName.RE().MatchString(a.EnvVar) {
		l.warn(at+"/env_var", RuleFormat, "write the name alone, as in BILLING_API_TOKEN", "env_var is the name of a variable, not a reference to it")
	}
	if a.Header != "" && a.Type != AuthAPIKey && a.Type != AuthBearer && a.Type != AuthBasic {
		l.warn(at+"/header", RuleIgnoredField, `set type to "api_key", or delete it`, "header is for the auth types api_key, bearer and basic")
	}
	if a.TokenURL != "" && a.Type != AuthOAuth2 {
		l.warn(at+"/token_url", RuleIgnoredField, `set type to "oauth2", or delete it`, "token_url is for the auth type oauth2")
	}
	if len(a.Scopes) > 0 && a.Type != AuthOAuth2 && a.Type != AuthAWSSigV4 { // for these types the scopes are the service and the region
		l.warn(at+"/scopes", RuleIgnoredField, "set one of these, or delete them", "scopes are for the auth types oauth2 and aws_sigv4")
	}
	l.uri(at+"/token_url", a.TokenURL)
}

func (l *linter) memory(at string, m *Memory) {
	if m.EmbeddingModel != "" && (m.Backend == "in_memory" || m.Backend == "redis") {
		l.warn(at+"/embedding_model", RuleIgnoredField, "choose a vector backend, or delete it", "backend %s has no vectors", m.Backend)
	}
}

func (l *linter) events(e *Events) {
	if e == nil {
		return
	}
	for i, t := range e.Triggers {
		at := child("/agent/events/triggers", i)
		for _, f := range []struct {
			owner       TriggerType
			name, value string
		}{
			{TriggerSchedule, "schedule", t.Schedule},
			{TriggerEvent, "event_name", t.EventName},
			{TriggerWebhook, "webhook_path", t.WebhookPath},
		} {
			switch {
			case t.Type == f.owner && f.value == "":
				l.warn(at, RuleIncomplete, "give "+f.name, "a trigger of type %s needs %s", t.Type, f.name)
			case t.Type != f.owner && f.value != "":
				l.warn(at+"/"+f.name, RuleIgnoredField, fmt.Sprintf("set type to %q, or delete it", f.owner), "%s has no effect on a trigger of type %s", f.name, t.Type)
			}
		}
	}
}

func (l *linter) evaluation(e *Evaluation) {
	if e == nil {
		return
	}
	for i, m := range e.Metrics {
		at := child("/agent/evaluation/metrics", i)
		switch {
		case m.Name == "custom" && m.CustomName == "":
			l.warn(at, RuleIncomplete, "give custom_name", "a custom metric needs a name")
		case m.Name != "custom" && m.CustomName != "":
			l.warn(at+"/custom_name", RuleIgnoredField, `set name to "custom", or delete it`, "metric %s has its own name", m.Name)
		}
		if !m.Threshold.IsSet() {
			l.warn(at, RuleIncomplete, "give threshold", "metric %s gates nothing without a threshold", m.Name)
		}
	}
}
