// Package route is a [model.Model] that routes between several models, by the
// algorithm of AAIF, LLM Provider Routing.
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
// answers. The next one is tried if a route is unavailable or rate limited, and
// also if it refuses the credential or does not have the model (HTTP 404),
// because it is then not available to this agent. A request that a provider
// refuses as wrong ends the search, because other providers would refuse it as
// well. So does a conversation that is too long, if it can be shortened: the
// caller does that and sends it again. If it cannot be shortened, routes with a
// larger window are tried.
//
// A route that asked for a delay (Retry-After) is not called for that time by
// any run of the process: see [Health], which also has a circuit breaker for
// each route. A fallback with a price ceiling (max_cost_usd_per_1k_tokens) is
// used only if neither its input nor its output costs more; if its price is not
// known it is not used.
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
// Routes that the strategy ranks equally keep the document's order.
//
// 4. A route whose context window is smaller than MinContext is never used. A
// route with an unknown window is not used either: the operator can set the
// window, in the catalogue or for the agent.
//
// # Requests
//
// The request goes to a route under the route's model name, with as much of the
// conversation as fits its window ([model.Request].Fit). params.extended is
// made for the provider of the document's first route: routes of other
// providers do not get it, and list it in Response.Dropped.
//
// # Failures
//
// If no route answers there is one [*model.Error]: its Tries name each route
// and the kind of its failure, its message has the providers' words, its
// RetryAfter is the shortest that a route asked for. Its kind is the one that
// is likely to be resolved first: unavailable, else rate limited, else auth,
// else the rest.
//
// A stream that breaks after text was streamed cannot be moved to another route
// here: the error is ErrUnavailable and names the route. A caller that retries
// names it in [model.Request].Avoid, and it is tried last.
//
// # Catalogue
//
// A [Catalog] has the facts: window, price, regions, quality. The built-in one
// is catalog.json, as of its date; an operator's file of the same form takes
// precedence over it.
package route
