package model

import (
	"maps"
	"sync"
)

const (
	maxRefusers = 256 // models whose refusals are kept
	maxRefusals = 64  // of each
)

// Refusals are what the models behind an adapter have refused of that which the
// adapter made of the port's words, kept so that it is asked for only once:
// which model takes which parameter changes by the month, and no table knows
// for long. The zero value has none. It is safe for concurrent use, and forgets
// everything rather than grow without bound.
type Refusals struct {
	mu sync.Mutex
	of map[string]map[string]int64
}

// Of is a copy of what a model has refused, by the adapter's own names, with
// what the adapter noted of each. It is never nil.
func (r *Refusals) Of(model string) map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := maps.Clone(r.of[model])
	if known == nil {
		known = map[string]int64{}
	}
	return known
}

// Keep notes that a model has refused what.
func (r *Refusals) Keep(model, what string, note int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil || len(r.of) >= maxRefusers && r.of[model] == nil {
		r.of = map[string]map[string]int64{}
	}
	if r.of[model] == nil || len(r.of[model]) >= maxRefusals {
		r.of[model] = map[string]int64{}
	}
	r.of[model][what] = note
}
