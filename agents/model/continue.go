package model

import (
	"context"
	"errors"
)

// Continuer is a Model that can go on with a turn of which a part was streamed
// already, before a worker died or a person paused the run. Without it the turn
// is generated anew and the part that matches is kept back, which costs the
// tokens twice and works only if the model says the same again.
type Continuer interface {
	Model

	// Continue is Generate for a turn whose streamed text began with told,
	// which is not empty. It streams what comes after told, and returns the
	// whole turn: told and the deltas concatenate to
	// Response.Message.Content. If the turn does not, or cannot, begin with
	// told, it returns [ErrNotContinued] and has not called onDelta.
	Continue(ctx context.Context, req *Request, told string, onDelta func(Delta) error) (*Response, error)
}

// ErrNotContinued says that a turn has to be generated from its beginning.
var ErrNotContinued = errors.New("the turn cannot be continued")
