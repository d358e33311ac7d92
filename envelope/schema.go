package envelope

import (
	_ "embed"
	"slices"
)

//go:embed aee-v1.schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of the envelope. [Parse] is hand-written
// and agrees with it; the schema is for other programs, and the tests compare [Parse]
// with it.
func Schema() []byte { return slices.Clone(schema) }
