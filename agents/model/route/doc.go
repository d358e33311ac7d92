// Package route chooses among models: it is a [model.Model] over several, by
// the algorithm of AAIF, LLM Provider Routing.
//
//	cat := route.Builtin()                                    // the catalogue that comes with this package
//	r, err := route.New([]route.Route{
//		{Provider: "openai", Model: "gpt-4o", M: openaiModel, Facts: cat.Lookup("openai", "gpt-4o"), Extended: true},
//		{Provider: "anthropic", Model: "claude-sonnet-4-5", M: anthropicModel, Facts: cat.Lookup("anthropic", "claude-sonnet-4-5")},
//	}, route.Options{Strategy: aaif.RouteCost, MinContext: 64000, Health: health})
//	m := r.Model()
//
// # The four steps
//
// 1 and 2. The routes are tried in order, one after the other, until one
// answers. The next one is tried when a route is unavailable or rate limited,
// and also when it refuses the credential or does not have the model (HTTP 404):
// it is not available to this agent then. A request that a provider refuses as
// wrong would be wrong elsewhere, and ends the search. So does a conversation
// that is too long, as long as it can be shortened: the loop does that and asks
// again. Where it cannot, routes with a larger window are tried.
//
// A route that asked to be left alone (Retry-After) is left alone for so long,
// by all runs of the process: see [Health], which also has a circuit breaker for
// each route. A fallback with a price ceiling
// (max_cost_usd_per_1k_tokens) is used only if neither its input nor its output
// costs more; if its price is not known it is not used.
//
// 3. The strategy orders the routes that can be used:
//
//   - preferred_first: as the document has them.
//   - cost: the cheapest first, by a price of three parts input and one part
//     output; those without a known price last.
//   - latency: the fastest first, by the median time of a turn that was observed
//     in the last 15 minutes. A route with fewer than three observations comes
//     before the measured ones, so that each is tried, and tried again after it
//     was slow once.
//   - quality: the best first, by the operator's ranking, else the catalogue's;
//     unranked ones last.
//   - round_robin: each call begins one route further on than the one before.
//
// Routes between which the strategy sees no difference keep the document's order.
//
// 4. A route whose context window is smaller than MinContext is never used. Nor
// is one whose window nobody knows: the operator says it, in the catalogue or
// for the agent.
//
// # What a request becomes
//
// The request goes to a route under the route's model name, with as much of the
// conversation as fits its window ([model.Request].Fit). params.extended is
// made for the provider of the document's first route: routes of other providers
// do not get it, and say so in Response.Dropped.
//
// # Failures
//
// If no route answers there is one [*model.Error]: its Tries name each route and
// the kind of its failure, its message has the providers' words, its RetryAfter
// is the shortest that a route asked for. Its kind is that of the route which is
// mended soonest: unavailable, else rate limited, else auth, else the rest.
//
// A stream that breaks after text was told cannot be mended here: the error is
// ErrUnavailable and names the route. Who asks again names it in
// [model.Request].Avoid, and it is the last to be tried.
//
// # Catalogue
//
// A [Catalog] has the facts: window, price, regions, quality. The one that comes
// with this package is catalog.json, as of its date; an operator's file of the
// same form comes before it.
package route
