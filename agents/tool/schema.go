package tool

import (
	"encoding/json"

	"github.com/aeemesh/aeemesh/intents/schema"
)

// Validator checks a JSON value. It is safe for concurrent use. Its error's
// text may be shown to a model.
type Validator interface {
	Validate(value json.RawMessage) error
}

// Compiler makes a Validator from a JSON Schema.
type Compiler func(schema json.RawMessage) (Validator, error)

// CompileSchema is the [Compiler] that Guard uses by default: [schema.Compile], which bounds
// schemas and the work of validation, because schemas and values may be untrusted. Formats are
// enforced.
func CompileSchema(raw json.RawMessage) (Validator, error) {
	return schema.Compile(raw)
}

// Within returns a [Compiler] for the tools of one origin, such as a server
// that lists many: all their schemas together must fit into pool.
func Within(pool *schema.Pool) Compiler {
	return func(raw json.RawMessage) (Validator, error) { return pool.Compile(raw) }
}
