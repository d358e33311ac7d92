package intents

import (
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// Errors for errors.Is.
var (
	// ErrUnknownIntent: the registry does not know the intent. The caller's policy
	// decides whether such a task is served or refused: according to the draft an unknown
	// intent is no error.
	ErrUnknownIntent = errors.New("unknown intent")
	// ErrReserved: an application may not register a name under "aee." or "mesh.".
	ErrReserved = errors.New("reserved intent name")
	// ErrRegistered: the intent is registered already; see [Registry.Replace].
	ErrRegistered = errors.New("intent is registered already")
)

// NameError says why a name cannot be an application's intent. For a legal but reserved
// name errors.Is(err, [ErrReserved]) is true.
type NameError struct {
	Intent string // as given; the message shows only its beginning
	Reason string
	cause  error
}

func (e *NameError) Error() string { return fmt.Sprintf("intent %s: %s", quoted(e.Intent), e.Reason) }

func (e *NameError) Unwrap() error { return e.cause }

// The types of the schema engine that a [Registry] uses and returns.
type (
	// Schema is a compiled JSON Schema.
	Schema = schema.Schema
	// SchemaError says why a schema was refused.
	SchemaError = schema.Error
	// ValidationError says why a payload does not conform to its schema.
	ValidationError = schema.ValidationError
)

// quoted escapes and shortens a name from outside for a message.
func quoted(s string) string { return fmt.Sprintf("%q", clip.Text(s, 64)) }
