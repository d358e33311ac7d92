package agents

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/builtin"
	"github.com/aeemesh/aeemesh/agents/model/openai"
)

// endpoints are the OpenAI-compatible base URLs of providers that have one for
// everybody. A key with a provider's default name goes to its host only.
var endpoints = map[aaif.Provider]string{
	aaif.ProviderOpenAI:     openai.DefaultBaseURL,
	aaif.ProviderMistral:    "https://api.mistral.ai/v1",
	aaif.ProviderGroq:       "https://api.groq.com/openai/v1",
	aaif.ProviderTogether:   "https://api.together.xyz/v1",
	aaif.ProviderFireworks:  "https://api.fireworks.ai/inference/v1",
	aaif.ProviderDeepSeek:   "https://api.deepseek.com/v1",
	aaif.ProviderXAI:        "https://api.x.ai/v1",
	aaif.ProviderOpenRouter: "https://openrouter.ai/api/v1",
	aaif.ProviderOllama:     "http://localhost:11434/v1",
}

const offlineHint = "or use the offline model, model: {provider: custom, provider_id: builtin, preferred: echo}"

// resolveModel finds the model that the document names (AAIF, LLM Provider
// Routing, step 1).
func resolveModel(def *aaif.Definition, opts Options) (model.Model, []aaif.Problem, error) {
	if opts.Model != nil {
		return opts.Model, nil, nil
	}
	m := def.Agent.Model
	if m == nil || m.Provider == "" && m.BaseURL == "" {
		return nil, nil, errors.New("/agent/model: the document names no model provider: give the worker a program (--exec), " + offlineHint)
	}
	if m.Provider == aaif.ProviderCustom && m.ProviderID == builtin.ProviderID {
		return resolveBuiltin(m)
	}
	base := m.BaseURL
	if base == "" {
		if base = endpoints[m.Provider]; base == "" {
			return nil, nil, fmt.Errorf("/agent/model/provider: %s cannot be reached here: give the base_url of an OpenAI-compatible endpoint, name one of %s, %s",
				providerName(m), supportedProviders(), offlineHint)
		}
	}
	if m.Preferred == "" {
		return nil, nil, errors.New("/agent/model/preferred: which model of the provider is not said")
	}
	cfg := openai.Config{BaseURL: base, HTTPClient: opts.HTTPClient}
	name, notices, err := keyName(m, base, opts)
	if err != nil {
		return nil, nil, err
	}
	if name != "" {
		cfg.Key = func(context.Context) (string, error) {
			if key, ok := opts.secret(name); ok {
				return key, nil
			}
			return "", fmt.Errorf("%s is not set", name)
		}
	}
	adapter, err := openai.New(cfg)
	if err != nil {
		return nil, notices, fmt.Errorf("/agent/model: %w", err)
	}
	return adapter, notices, nil
}

func resolveBuiltin(m *aaif.Model) (model.Model, []aaif.Problem, error) {
	switch m.Preferred {
	case builtin.Echo:
	case builtin.Script:
		if m.Params == nil {
			return nil, nil, errors.New("/agent/model/params/extended/script: the script is missing")
		}
		if err := builtin.Check(m.Params.Extended); err != nil {
			return nil, nil, fmt.Errorf("/agent/model/params/extended: %w", err)
		}
	default:
		return nil, nil, fmt.Errorf("/agent/model/preferred: the offline model is %q or %q, not %q", builtin.Echo, builtin.Script, m.Preferred)
	}
	return builtin.New(), nil, nil
}

// keyName decides under which name the model's API key is looked up; "" sends
// none. A base_url comes from the document, maybe a stranger's: a key that
// everybody has under a well-known name must not go wherever it points.
func keyName(m *aaif.Model, base string, opts Options) (string, []aaif.Problem, error) {
	notice := func(format string, args ...any) []aaif.Problem {
		return []aaif.Problem{{
			Pointer: "/agent/model/base_url", Rule: RuleModelKey, Severity: aaif.SeverityWarning,
			Message: fmt.Sprintf(format, args...),
		}}
	}
	if opts.KeyName != "" {
		if _, ok := opts.secret(opts.KeyName); !ok {
			return "", nil, fmt.Errorf("model key: %s is not set", opts.KeyName)
		}
		return opts.KeyName, nil, nil
	}
	name := defaultKeyName(m)
	set := false
	if name != "" {
		_, set = opts.secret(name)
	}
	switch owner := keyOwner(name); {
	case !set && m.BaseURL == "" && m.Provider != aaif.ProviderOllama:
		return "", nil, fmt.Errorf("model key: %s is not set", name)
	case !set:
		return "", nil, nil
	case owner != "" && originOf(endpoints[owner]) != originOf(base):
		p := notice("the key in %s is not sent to %s, which is not %s's own endpoint", name, originOf(base), owner)
		p[0].Hint = "name the key yourself to send it there"
		return "", p, nil
	case owner == "" && !loopback(hostOf(base)):
		return name, notice("the key in %s is sent to %s", name, originOf(base)), nil
	}
	return name, nil, nil
}

// defaultKeyName is OPENAI_API_KEY for openai, and so on.
func defaultKeyName(m *aaif.Model) string {
	id := string(m.Provider)
	if m.Provider == aaif.ProviderCustom || id == "" {
		id = m.ProviderID
	}
	if id == "" {
		return ""
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, id) + "_API_KEY"
}

// keyOwner is the standard provider whose key has this name.
func keyOwner(name string) aaif.Provider {
	for _, p := range aaif.Providers() {
		if p != aaif.ProviderCustom && name == defaultKeyName(&aaif.Model{Provider: p}) {
			return p
		}
	}
	return ""
}

func originOf(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

func hostOf(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (o *Options) secret(name string) (string, bool) {
	if o.Secret == nil {
		return "", false
	}
	return o.Secret(name)
}

func providerName(m *aaif.Model) string {
	if m.Provider == aaif.ProviderCustom && m.ProviderID != "" {
		return "custom provider " + m.ProviderID
	}
	return "provider " + string(m.Provider)
}

func supportedProviders() string {
	var names []string
	for _, p := range aaif.Providers() {
		if endpoints[p] != "" {
			names = append(names, string(p))
		}
	}
	return strings.Join(names, ", ")
}
