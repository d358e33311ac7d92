package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
)

// Route is a model at a provider.
type Route struct {
	// Provider is the document's name of the provider: of the registry, or an
	// operator's own.
	Provider string
	// Model is the model's name in the provider's notation.
	Model string
	// M calls the provider.
	M model.Model

	// Endpoint distinguishes, in Health, routes with the same name at different
	// addresses. Default none.
	Endpoint string

	// Facts are the known facts about the model.
	Facts Facts
	// MaxCost is the highest permitted price of a thousand tokens; nil: any
	// price.
	MaxCost *model.USD
	// Extended reports whether params.extended of the document is for this
	// route.
	Extended bool
	// Rank is the operator's ranking of quality: 1 is the best, 0 is unranked.
	Rank int
}

// Name is the route's name in errors and logs: provider/model.
func (r *Route) Name() string { return r.Provider + "/" + r.Model }

// Options are the settings of a Router.
type Options struct {
	// Strategy orders the routes. Default preferred_first.
	Strategy aaif.RoutingStrategy
	// MinContext is the minimum context window, in tokens. Default: any, known
	// or not.
	MinContext int
	// Health is the state of routes, shared by all routers of a process.
	// Default: one of the router's own.
	Health *Health
	// Logger gets each failure of a route. Default: discarded.
	Logger *slog.Logger
}

// Router is a [model.Model] over routes. Make it with [New]; it is safe for
// concurrent use.
type Router struct {
	routes []*way // all, in the document's order
	usable []*way
	opts   Options
	turn   atomic.Uint64 // counter of round_robin
}

// way is a route with its health.
type way struct {
	Route
	at     int    // index in the document's order
	skip   string // why it is never used; "" if it may be
	health *routeHealth
}

// New makes a router. It returns an error if no route can be used. It does no
// I/O.
func New(routes []Route, o Options) (*Router, error) {
	if o.Health == nil {
		o.Health = NewHealth(HealthOptions{})
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	switch o.Strategy {
	case "":
		o.Strategy = aaif.RoutePreferredFirst
	case aaif.RoutePreferredFirst, aaif.RouteCost, aaif.RouteLatency, aaif.RouteQuality, aaif.RouteRoundRobin:
	default:
		return nil, fmt.Errorf("model routes: there is no strategy %q", o.Strategy)
	}
	if len(routes) == 0 {
		return nil, errors.New("model routes: there are none")
	}
	r := &Router{opts: o}
	var skipped []error
	for i := range routes {
		w := &way{Route: routes[i], at: i, skip: Unfit(&routes[i], o.MinContext), health: o.Health.of(&routes[i])}
		r.routes = append(r.routes, w)
		if w.skip == "" {
			r.usable = append(r.usable, w)
		} else {
			skipped = append(skipped, fmt.Errorf("%s: %s", w.Name(), w.skip))
		}
	}
	if len(r.usable) == 0 {
		return nil, fmt.Errorf("model routes: none can be used: %w", errors.Join(skipped...))
	}
	return r, nil
}

// Unfit returns why a route is never used; "" if it may be (AAIF, LLM Provider
// Routing, steps 2 and 4).
func Unfit(r *Route, minContext int) string {
	switch window := r.Facts.ContextTokens; {
	case minContext > 0 && window == 0:
		return fmt.Sprintf("its context window is not known, and min_context_tokens is %d", minContext)
	case minContext > window && window > 0:
		return fmt.Sprintf("its context window has %d tokens, and min_context_tokens is %d", window, minContext)
	}
	if r.MaxCost == nil {
		return ""
	}
	price, known := r.Facts.Highest()
	switch {
	case !known:
		return fmt.Sprintf("its price is not known, and max_cost_usd_per_1k_tokens is %s", *r.MaxCost)
	case price > *r.MaxCost:
		return fmt.Sprintf("it costs up to %s USD a thousand tokens, and max_cost_usd_per_1k_tokens is %s", price, *r.MaxCost)
	}
	return ""
}

// Model returns the router as a Model. It is a [model.Continuer] if one of its
// routes is.
func (r *Router) Model() model.Model {
	for _, w := range r.usable {
		if _, ok := w.M.(model.Continuer); ok {
			return continuer{r}
		}
	}
	return r
}

// Order returns the order in which the usable routes would be tried now, as
// indexes into the routes of New.
func (r *Router) Order() []int {
	var at []int
	for _, w := range r.order(nil, false) {
		at = append(at, w.at)
	}
	return at
}

// continuer is a Router with a route that is a Continuer.
type continuer struct{ *Router }

// Continue continues a turn on the first usable route. If that route cannot
// continue, Generate generates the turn anew.
func (c continuer) Continue(ctx context.Context, req *model.Request, told string, onDelta func(model.Delta) error) (*model.Response, error) {
	return c.walk(ctx, req, onDelta, func(w *way, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
		m, ok := w.M.(model.Continuer)
		if !ok {
			return nil, model.ErrNotContinued
		}
		return m.Continue(ctx, req, told, onDelta)
	})
}

// order returns the usable routes in the order in which they are to be tried,
// avoided ones last. If call is true, it advances the round robin.
func (r *Router) order(avoid []string, call bool) []*way {
	ways := slices.Clone(r.usable)
	switch r.opts.Strategy {
	case aaif.RouteCost:
		slices.SortStableFunc(ways, by(func(w *way) (float64, bool) { return w.Facts.blended() }))
	case aaif.RouteQuality:
		slices.SortStableFunc(ways, by(func(w *way) (float64, bool) {
			if w.Rank > 0 {
				return float64(w.Rank) - 1e9, true // the operator's ranking takes precedence over the catalogue's
			}
			return -w.Facts.Quality, w.Facts.Quality > 0
		}))
	case aaif.RouteLatency:
		slices.SortStableFunc(ways, by(func(w *way) (float64, bool) {
			t := w.health.typical()
			if t.Samples < enoughSamples {
				return -1, true
			}
			return float64(t.P50), true
		}))
	case aaif.RouteRoundRobin:
		ways = r.round(ways, call)
	}
	if len(avoid) == 0 {
		return ways
	}
	var last []*way
	ways = slices.DeleteFunc(ways, func(w *way) bool {
		if !slices.Contains(avoid, w.Name()) {
			return false
		}
		last = append(last, w)
		return true
	})
	return append(ways, last...)
}

// round rotates the routes by one for each call. Routes that must not be called
// now are left out first, because otherwise the next route would get all of
// their calls.
func (r *Router) round(ways []*way, call bool) []*way {
	var up, down []*way
	for _, w := range ways {
		if _, alone := w.health.leftAlone(); alone {
			down = append(down, w)
		} else {
			up = append(up, w)
		}
	}
	if len(up) == 0 {
		return ways
	}
	n := r.turn.Load()
	if call {
		n = r.turn.Add(1) - 1
	}
	k := int(n % uint64(len(up)))
	return slices.Concat(up[k:], up[:k], down)
}

// by compares by a number, ascending; routes without one come last.
func by(key func(*way) (float64, bool)) func(a, b *way) int {
	return func(a, b *way) int {
		x, known := key(a)
		y, other := key(b)
		switch {
		case known != other && known:
			return -1
		case known != other:
			return 1
		case !known || x == y:
			return 0
		case x < y:
			return -1
		}
		return 1
	}
}
