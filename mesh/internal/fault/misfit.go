package fault

import (
	"cmp"
	"encoding/json"
	"errors"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Misfit returns E_INPUT_SCHEMA with what is wrong in a payload, without the names of Go
// types.
func Misfit(err error) *envelope.Error {
	var mistyped *json.UnmarshalTypeError
	if !errors.As(err, &mistyped) {
		return envelope.Errorf(envelope.CodeInputSchema, "the payload does not fit the agent's input").WithCause(err)
	}
	field, value := mistyped.Field, mistyped.Value
	field = cmp.Or(field, "it")
	switch value {
	case "array", "object":
		value = "an " + value
	case "string", "number", "bool":
		value = "a " + value
	}
	return envelope.Errorf(envelope.CodeInputSchema, "the payload does not fit the agent's input: %s cannot be %s", clip.Text(field, 128), clip.Text(value, 128)).WithCause(err)
}
