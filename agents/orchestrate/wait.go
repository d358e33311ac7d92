package orchestrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// stillOut is the error of a team that cannot continue now: it waits for the
// answers of people, and nothing else can be done before one of them answers.
type stillOut struct{ waits []state.Wait }

func (e *stillOut) Error() string {
	return fmt.Sprintf("%d members have not answered: %v", len(e.waits), mesh.ErrAnswerPending)
}

// Unwrap returns [mesh.ErrAnswerPending].
func (e *stillOut) Unwrap() error { return mesh.ErrAnswerPending }

// park parks the run if err says that it waits for answers. An answer, or the
// end of its time, wakes the run: the team then starts again from what is
// committed here, and calls under the same keys. Other errors are returned
// unchanged.
func (w *work) park(ctx context.Context, err error) error {
	var waits []state.Wait
	var all *stillOut
	var one *mesh.PendingError
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
