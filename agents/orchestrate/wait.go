package orchestrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// stillOut is why a team cannot go on now: members have been asked who may take
// long, people, and nothing else is left to do before one of them answers.
type stillOut struct{ waits []state.Wait }

func (e *stillOut) Error() string {
	return fmt.Sprintf("%d members have not answered: %v", len(e.waits), mesh.ErrWaits)
}

// Unwrap returns [mesh.ErrWaits].
func (e *stillOut) Unwrap() error { return mesh.ErrWaits }

// park parks the run where err says that it waits for somebody. Whoever answers,
// and the end of their time, wake it: then the team begins anew, from what is
// committed here, and asks under the same keys. Other errors are returned as
// they are.
func (w *work) park(ctx context.Context, err error) error {
	var waits []state.Wait
	var all *stillOut
	var one *mesh.WaitsError
	switch {
	case errors.As(err, &all):
		waits = all.waits
	case errors.As(err, &one):
		waits = []state.Wait{one.Wait}
	default:
		return err
	}
	return w.run.ParkUntil(ctx, mesh.Wake{On: waits}, w.save)
}
