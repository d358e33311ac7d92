package intents

import (
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// Sentinels that callers branch on.
var (
	// ErrUnknownIntent says that a registry has never heard of an intent.
	// Whether such a task is served or refused is the caller's policy: the
	// draft says that the absence of a recognised intent is no error.
	ErrUnknownIntent = errors.New("unknown intent")
	// ErrReserved says that an application asked for a name under "aee." or "mesh.".
	ErrReserved = errors.New("reserved intent name")
	// ErrRegistered says that an intent is registered already; see [Registry.Replace].
	ErrRegistered = errors.New("intent is registered already")
)

// NameError says why a name cannot be an application's intent. Where the name
// is legal but reserved, errors.Is(err, [ErrReserved]) holds.
type NameError struct {
	Intent string // as given; the message shows no more than its beginning
	Reason string
	cause  error
}

func (e *NameError) Error() string { return fmt.Sprintf("intent %s: %s", quoted(e.Intent), e.Reason) }

func (e *NameError) Unwrap() error { return e.cause }

// What a [Registry] is made of, and what it reports: the schema engine's own types.
type (
	// Schema is a compiled JSON Schema.
	Schema = schema.Schema
	// SchemaError says why a schema is refused.
	SchemaError = schema.Error
	// ValidationError says why a payload does not fit its schema.
	ValidationError = schema.ValidationError
)

// quoted shows a name that somebody else chose: escaped, and no longer than
// a line bears.
func quoted(s string) string { return fmt.Sprintf("%q", clip.Text(s, 64)) }
