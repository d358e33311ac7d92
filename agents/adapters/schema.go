package adapters

import (
	"reflect"

	"github.com/aeemesh/aeemesh/agents/model"
)

// Sections returns the JSON Schemas of the sections of a configuration, by name. The schemas of
// budget and tree have the members; the others say only that the section is an object.
func Sections() map[string]any {
	out := make(map[string]any)
	for _, name := range members(reflect.TypeFor[Config]()) {
		out[name] = map[string]any{"type": "object"}
	}
	for _, name := range []string{"budget", "tree"} {
		out[name] = boundsSchema(below(reflect.TypeFor[Config](), name))
	}
	return out
}

// boundsSchema is the schema of a section whose members are bounds: whole numbers, and
// dollars.
func boundsSchema(t reflect.Type) map[string]any {
	bounds := make(map[string]any)
	for _, name := range members(t) {
		kind := "integer"
		if below(t, name) == reflect.TypeFor[model.USD]() {
			kind = "number"
		}
		bounds[name] = map[string]any{"type": kind, "exclusiveMinimum": 0}
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": bounds}
}
