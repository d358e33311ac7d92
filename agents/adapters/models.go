package adapters

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/builtin"
	"github.com/aeemesh/aeemesh/agents/model/route"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
)

// RuleModelRoute is the rule of notices about routes to models that cannot be
// used.
const RuleModelRoute aaif.Rule = "model-route"

// Model makes the model that a document names, with the routes that it declares
// (AAIF, LLM Provider Routing); see [agents.Options].Models. It does no network
// I/O.
//
// A route that cannot be used here is left out, and a notice says why. It is an
// error if none is left.
func (s *Set) Model(def *aaif.Definition, opts agents.Options) (model.Model, []aaif.Problem, error) {
	plan, notices, err := s.plan(def, opts)
	if err != nil {
		return nil, notices, err
	}
	m := def.Agent.Model
	if len(plan) == 1 && plan[0].Provider == builtin.ProviderID && plan[0].Model == m.Preferred { // a failing script does not mean that a provider is down
		facts := plan[0].Facts
		return agents.Asking(facts.Price(), facts.Cost, agents.Reported(builtin.ProviderID, plan[0].M)), notices, nil
	}
	var routes []route.Route
	var bad []error
	minContext := int(min(m.MinContextTokens.Int64(), 1<<40))
	for i := range plan {
		p := &plan[i]
		if p.Why == "" {
			p.Why = unfit(&p.Route, minContext, opts.Budget)
		}
		if p.Why == "" {
			p.M = agents.Reported(p.Provider, p.M)
			routes = append(routes, p.Route)
			continue
		}
		bad = append(bad, fmt.Errorf("%s: %s", p.Pointer, p.Why))
		if len(plan) > 1 {
			notices = append(notices, p.notice(minContext))
		}
	}
	if len(routes) == 0 {
		err := bad[0]
		if len(bad) > 1 {
			err = fmt.Errorf("no route to a model can be used: %w", errors.Join(bad...))
		}
		return nil, notices, NoRoute(plan, err)
	}
	r, err := route.New(routes, route.Options{Strategy: m.RoutingStrategy, MinContext: minContext, Health: s.health, Logger: opts.Logger})
	if err != nil {
		return nil, notices, err
	}
	return r.Model(), notices, nil
}

// Planned is a route of a document with its endpoint, its key, and the reason if it cannot be used.
type Planned struct {
	route.Route
	// Pointer is the route's place in the document.
	Pointer string
	// Endpoint is where its requests are sent; empty if the adapter determines
	// that itself.
	Endpoint string
	// Key is the source of its key: a variable, "file", "vault NAME", "AWS" or "Google Cloud" for
	// their own credentials, "" for none. HasKey reports whether the key is present, as far as that
	// can be determined without reading it.
	Key    string
	HasKey bool
	// Why is why the route cannot be used; "" if it can be used.
	Why string
}

// A NoRouteError is the error of a document that has no usable route.
type NoRouteError struct {
	err   error
	unset []string
}

func (e *NoRouteError) Error() string { return e.err.Error() }
func (e *NoRouteError) Unwrap() error { return e.err }

// UnsetKeys returns the variables of the keys that are missing.
func (e *NoRouteError) UnsetKeys() []string { return e.unset }

// NoRoute wraps err in the error that none of the routes can be used.
func NoRoute(routes []Planned, err error) *NoRouteError {
	e := &NoRouteError{err: err}
	for _, p := range routes {
		if p.Key != "" && !p.HasKey && !slices.Contains(e.unset, p.Key) {
			e.unset = append(e.unset, p.Key)
		}
	}
	return e
}

// unfit returns why a route is never used; "" if it may be.
func unfit(r *route.Route, minContext int, budget agents.Budget) string {
	if _, priced := r.Facts.Highest(); !priced && budget.InDollars() {
		return "its price is not known, and there is a budget in dollars: put the model into a catalogue (models.catalog)"
	}
	return route.Unfit(r, minContext)
}

// notice tells the operator that a route cannot be used.
func (p *Planned) notice(minContext int) aaif.Problem {
	n := aaif.Problem{Pointer: p.Pointer, Rule: RuleModelRoute, Severity: aaif.SeverityWarning,
		Message: fmt.Sprintf("the route %s is not taken: %s", p.Name(), p.Why)}
	if minContext > 0 && p.Facts.ContextTokens == 0 && p.Why == route.Unfit(&p.Route, minContext) { // this is the only reason
		n.Severity = aaif.SeverityError
		n.Hint = "say how large its context window is, in a catalogue (models.catalog) or with --context-tokens"
	}
	return n
}

// Routes returns the routes that a document declares: first those that can be
// used, in the order in which its strategy would try them now, then the others.
// LeftAlone and Typical come from the calls of this process.
func (s *Set) Routes(def *aaif.Definition, opts agents.Options) ([]Planned, []aaif.Problem, error) {
	plan, notices, err := s.plan(def, opts)
	if err != nil {
		return nil, notices, err
	}
	m := def.Agent.Model
	minContext := int(min(m.MinContextTokens.Int64(), 1<<40))
	var usable, rest []Planned
	var routes []route.Route
	for _, p := range plan {
		if p.Why == "" {
			p.Why = unfit(&p.Route, minContext, opts.Budget)
		}
		if p.Why != "" {
			rest = append(rest, p)
			continue
		}
		usable = append(usable, p)
		routes = append(routes, p.Route)
	}
	if len(routes) == 0 {
		return rest, notices, nil
	}
	r, err := route.New(routes, route.Options{Strategy: m.RoutingStrategy, MinContext: minContext, Health: s.health})
	if err != nil {
		return nil, notices, err
	}
	var out []Planned
	for _, at := range r.Order() {
		out = append(out, usable[at])
	}
	return append(out, rest...), notices, nil
}

// plan makes the routes of a document, in the document's order.
func (s *Set) plan(def *aaif.Definition, opts agents.Options) ([]Planned, []aaif.Problem, error) {
	m := def.Agent.Model
	const offline = "or use the offline model, model: {provider: custom, provider_id: builtin, preferred: echo}"
	if !orchestrate.HasModel(def) {
		return nil, nil, errors.New("/agent/model: the document names no model provider: give the worker a program (--exec), " + offline)
	}
	first, primary := nameOf(m), m.Provider != "" || m.BaseURL != ""
	switch {
	case !primary: // without a primary route the fallbacks are tried (AAIF, LLM Provider Routing, step 2)
		first = m.Fallbacks[0].Provider
	case m.Preferred == "":
		return nil, nil, errors.New("/agent/model/preferred: the model of the provider is not named")
	case first == builtin.ProviderID:
		if err := agents.CheckBuiltin(m.Preferred, m.Params); err != nil {
			return nil, nil, err
		}
	}
	var plan []Planned
	var notices []aaif.Problem
	add := func(at, name, modelName string) *Planned {
		p, more, err := s.route(at, name, first, modelName, def, opts)
		if err != nil {
			p.Why = strings.TrimPrefix(err.Error(), at+": ")
		}
		plan, notices = append(plan, p), append(notices, more...)
		return &plan[len(plan)-1]
	}
	if primary {
		add("/agent/model", first, m.Preferred)
	}
	foreign := false
	for i, f := range m.Fallbacks {
		at := fmt.Sprintf("/agent/model/fallbacks/%d", i)
		name := f.Provider
		// The document's base_url and provider_id belong to the first route. If
		// that is another provider, a custom route has no endpoint.
		if custom := primary && (m.Provider == aaif.ProviderCustom || m.Provider == ""); custom && (name == string(aaif.ProviderCustom) || name == m.ProviderID) {
			name = first
		}
		p := add(at, name, f.Model)
		if f.MaxCostUSDPer1KToken.IsSet() {
			ceiling, err := model.ParseUSD(string(f.MaxCostUSDPer1KToken))
			if err != nil {
				p.Why = fmt.Sprintf("max_cost_usd_per_1k_tokens: %v", err)
			}
			p.MaxCost = &ceiling
		}
		foreign = foreign || !p.Extended
	}
	if foreign && m.Params != nil && len(m.Params.Extended) > 0 {
		notices = append(notices, aaif.Problem{Pointer: "/agent/model/params/extended", Rule: RuleModelRoute, Severity: aaif.SeverityWarning,
			Message: fmt.Sprintf("these parameters are %s's own: fallbacks to other providers do not get them", first)})
	}
	return plan, notices, nil
}

// nameOf returns the provider's name of the document's first route: provider_id if that is more
// specific.
func nameOf(m *aaif.Model) string {
	if (m.Provider == aaif.ProviderCustom || m.Provider == "") && m.ProviderID != "" {
		return m.ProviderID
	}
	if m.Provider == "" {
		return string(aaif.ProviderCustom)
	}
	return string(m.Provider)
}

// route makes one route. name is its provider; first is the provider of the
// document's first route, to which the document's base_url belongs.
func (s *Set) route(at, name, first, modelName string, def *aaif.Definition, opts agents.Options) (Planned, []aaif.Problem, error) {
	p := Planned{Pointer: at, Route: route.Route{Provider: name, Model: modelName, Extended: name == first, Facts: s.catalog.Lookup(name, modelName)}}
	if opts.ContextTokens > 0 {
		p.Facts.ContextTokens = opts.ContextTokens
	}
	for i, pattern := range s.cfg.Models.Quality {
		if route.Matches(pattern, name, modelName) {
			p.Rank = i + 1
			break
		}
	}
	if name == builtin.ProviderID {
		p.M = builtin.New()
		if _, priced := p.Facts.Highest(); !priced { // by the operator's catalogue
			free := model.USD(0)
			p.Facts.Input, p.Facts.Output = &free, &free
		}
		p.Facts.ContextTokens = cmp.Or(p.Facts.ContextTokens, 1<<20) // it has no limit
		return p, nil, agents.CheckBuiltin(modelName, def.Agent.Model.Params)
	}
	e, notices, err := s.endpoint(at, name, name == first, def.Agent.Model, opts)
	p.Endpoint, p.Key, p.HasKey = e.base, e.keyFrom, e.hasKey
	p.Route.Endpoint = e.base + " " + e.keyFrom
	if err != nil {
		return p, notices, err
	}
	if p.M, err = e.model(opts); err != nil {
		return p, notices, fmt.Errorf("%s: %w", at, err)
	}
	return p, notices, nil
}

// secretOf looks up a variable for the models of an agent.
func secretOf(opts agents.Options, name string) (string, bool) {
	if opts.Secret == nil {
		return "", false
	}
	return opts.Secret(name)
}
