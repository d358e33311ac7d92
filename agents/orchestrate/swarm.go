package orchestrate

import (
	"context"
	"encoding/json"

	"github.com/aeemesh/aeemesh/envelope"
)

// swarm has all members work on the same input.
func (w *work) swarm(context.Context, json.RawMessage) (json.RawMessage, error) {
	return nil, envelope.Errorf(envelope.CodeUnavailable, "this release has no swarms yet")
}
