package aaif

import (
	"maps"
	"slices"
)

// Set is a set of names.
type Set[T ~string] map[T]struct{}

// SetOf makes a set.
func SetOf[T ~string](names ...T) Set[T] {
	s := make(Set[T], len(names))
	for _, n := range names {
		s[n] = struct{}{}
	}
	return s
}

// Has reports whether a name is in the set. A nil set is empty.
func (s Set[T]) Has(name T) bool { _, ok := s[name]; return ok }

// Sorted returns the names in order.
func (s Set[T]) Sorted() []T { return slices.Sorted(maps.Keys(s)) }

// An Offer lists what a runtime offers to agents.
type Offer struct {
	// Capabilities are ids of the registry, such as tool.function, and names of
	// manifest fields, such as telemetry.otel_traces. If both name the same
	// thing, either satisfies the other.
	Capabilities Set[string]
	// Languages are the condition languages that the runtime evaluates.
	Languages Set[Language]
}

// A Need is what a definition requires of a runtime.
type Need struct {
	Capabilities []string            // required_capabilities, as declared
	Languages    map[Language]string // of its structured conditions, each with the pointer of one
}

// Needs collects what the definition requires: its required_capabilities, and the languages of its structured
// conditions.
func (d *Definition) Needs() Need {
	n := Need{Capabilities: d.Agent.RequiredCapabilities, Languages: make(map[Language]string)}
	for pointer, c := range d.Conditions() {
		if c.IsString() {
			continue
		}
		if first, ok := n.Languages[c.Lang]; !ok || comparePointers(pointer, first) < 0 {
			n.Languages[c.Lang] = pointer
		}
	}
	return n
}

// registryNames maps a manifest's name of a capability to the registry's id,
// where they differ. Existing documents require either.
var registryNames = map[string]string{
	"telemetry.otel_traces":        CapTelemetryOTel,
	"compliance.human_in_the_loop": CapHumanInTheLoop,
}

// registryName returns the registry's id of a capability, or the name itself.
func registryName(name string) string {
	if id, ok := registryNames[name]; ok {
		return id
	}
	return name
}

// Offers reports whether a runtime has a capability, under this name or its
// other one.
func (o Offer) Offers(capability string) bool {
	if o.Capabilities.Has(capability) || capability == CapConditionStructured && len(o.Languages) > 0 {
		return true
	}
	id := registryName(capability)
	if o.Capabilities.Has(id) {
		return true
	}
	for name, other := range registryNames {
		if other == id && o.Capabilities.Has(name) {
			return true
		}
	}
	return false
}
