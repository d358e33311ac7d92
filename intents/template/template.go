package template

import (
	"encoding/json"
	"time"
)

// Other is the name of the key that every template has (SDSI 4.3): optional, a string or an array
// of strings. It contains, in natural language, what fits no other key.
const Other = "other"

// A Template is one version of the data that an agent needs in one scenario (SDSI 4.1).
type Template struct {
	// SchemaID identifies this version among the agent's templates. Required.
	SchemaID string `json:"schema_id"`
	// Scenario names the interaction, for example "flight_booking". Required.
	Scenario string `json:"scenario"`
	// Description describes the scenario in one line.
	Description string `json:"description,omitempty"`
	// Language is the language of the descriptions, a BCP 47 tag. Default: not known.
	Language string `json:"language,omitempty"`
	// Keys are the keys of a payload, in the author's order. Required. "other" is one of them.
	Keys []Key `json:"keys"`
	// ResponseSchema is the JSON Schema of the results (SDSI 3.2, step 5).
	ResponseSchema json.RawMessage `json:"response_schema,omitempty"`
}

// A Key defines one key of a payload (SDSI 4.1).
type Key struct {
	// Name is in snake_case, and unique in the template.
	Name string `json:"key_name"`
	// Type is a type of JSON Schema.
	Type Type `json:"key_type"`
	// Required says that a payload must have the key.
	Required bool `json:"required"`
	// Default is the value of the key if a payload has none. null means no default, as does a
	// missing member.
	Default json.RawMessage `json:"default_value,omitempty"`
	// Description explains the meaning, the values that are accepted, and how words
	// become values. It is part of the client's prompt.
	Description string `json:"semantic_description"`
	// Descriptions has the description in other languages, by BCP 47 tag. [Template.In]
	// makes a template of one language.
	Descriptions map[string]string `json:"semantic_descriptions,omitempty"`
	// Value is a JSON Schema that the key's value must fit, for example
	// {"enum":["economy","business"]} or {"minimum":1,"maximum":9}.
	Value json.RawMessage `json:"value_schema,omitempty"`
	// Property is the key's name in the agent's own schema. Default: Name. [Filled] has the values
	// by these names. [FromJSONSchema] sets it for a property that is not in snake_case.
	Property string `json:"property,omitempty"`
	// Experimental marks a key on trial (SDSI 6.2.3).
	Experimental bool `json:"experimental,omitempty"`
	// Deprecated marks a key that will be withdrawn.
	Deprecated bool `json:"deprecated,omitempty"`
	// Learned marks a key that a patch has added: [Template.Apply] sets it. It is not on the wire.
	Learned bool `json:"-"`
}

// A Type is a key_type: one of the seven types of JSON Schema.
type Type string

// The types of JSON Schema.
const (
	String  Type = "string"
	Integer Type = "integer"
	Number  Type = "number"
	Boolean Type = "boolean"
	Array   Type = "array"
	Object  Type = "object"
	Null    Type = "null"
)

// A Payload is the message of a client: the version that it has filled, and the values (SDSI 5.1).
type Payload struct {
	SchemaID string          `json:"schema_id"`
	Payload  json.RawMessage `json:"payload"`
	// Fragments are, by key, the client's words from which it made the values of learned keys.
	// They show the agent how well clients understand a key. See [Mapping.Evidence].
	Fragments map[string]string `json:"fragments,omitempty"`
	// NoUpdates asks the agent to learn nothing from this payload, and to send no
	// suggestion. On the wire it is "schema_updates": false.
	NoUpdates bool `json:"-"`
}

// A Patch adds learned keys and descriptions to a template (SDSI 6.2.2). It cannot remove a key or
// change a key's type.
type Patch struct {
	PatchID        string    `json:"patch_id"`
	ParentSchemaID string    `json:"parent_schema_id"`
	Timestamp      time.Time `json:"timestamp"`
	// Expires is the time after which clients must not use the patch any more.
	Expires time.Time `json:"expiration"`
	// NewKeys are optional keys that the template does not have.
	NewKeys []Key `json:"new_keys,omitempty"`
	// ModifiedKeys are better descriptions of keys that the template has.
	ModifiedKeys []Refinement `json:"modified_keys,omitempty"`
}

// A Refinement is a better description of an existing key. It has no other member, so a patch can
// neither remove a key nor change its type.
type Refinement struct {
	Name        string `json:"key_name"`
	Description string `json:"semantic_description"`
}
