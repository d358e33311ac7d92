package route

import "github.com/aeemesh/aeemesh/agents/model"

// Status is the current state of a route.
type Status struct {
	Route
	Skip      string     // why it is never used; "" if it is
	LeftAlone *model.Try // why it is not called at the moment; nil if it may be
	Typical   Latency    // observed latency
}

// Routes returns all routes: first those that can be used, in the order in
// which they would be tried now, then the others in the document's order.
func (r *Router) Routes() []Status {
	var all []Status
	for _, w := range r.order(nil, false) {
		s := Status{Route: w.Route, Typical: w.health.typical()}
		if try, alone := w.health.leftAlone(); alone {
			try.Route = w.Name()
			s.LeftAlone = &try
		}
		all = append(all, s)
	}
	for _, w := range r.routes {
		if w.skip != "" {
			all = append(all, Status{Route: w.Route, Skip: w.skip})
		}
	}
	return all
}
