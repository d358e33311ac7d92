package model

import (
	"maps"
	"sync"
)

const (
	maxRefusers = 256 // models whose refusals are stored
	maxRefusals = 64  // of each
)

// Refusals stores what the models behind an adapter have refused, so that it is
// requested only once. Which model accepts which parameter changes often, so
// there is no fixed table. The zero value is empty. It is safe for concurrent
// use, and is cleared when it becomes too large.
type Refusals struct {
	mu sync.Mutex
	of map[string]map[string]int64
}

// Of returns a copy of what a model has refused, by the adapter's own names,
// with the adapter's note for each. It is never nil.
func (r *Refusals) Of(model string) map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := maps.Clone(r.of[model])
	if known == nil {
		known = map[string]int64{}
	}
	return known
}

// Keep stores that a model has refused what.
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
