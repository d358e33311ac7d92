package model

import (
	"context"
	"errors"
)

// Continuer is a Model that can continue a turn of which a part was streamed
// already, before a worker crashed or the run was paused. For other models the
// turn is generated anew and the matching part is held back. That costs the
// tokens twice, and works only if the model generates the same text again.
type Continuer interface {
	Model

	// Continue is Generate for a turn whose streamed text began with told,
	// which is not empty. It streams what comes after told, and returns the
	// whole turn: told and the deltas concatenate to
	// Response.Message.Content. If the turn does not, or cannot, begin with
	// told, it returns [ErrNotContinued] and has not called onDelta.
	Continue(ctx context.Context, req *Request, told string, onDelta func(Delta) error) (*Response, error)
}

// ErrNotContinued means that a turn must be generated from its beginning.
var ErrNotContinued = errors.New("the turn cannot be continued")
