package mesh

import (
	"errors"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
)

// A run that waits for an approval, and needs the answer of a person after that, does not leave the
// mesh, also if that was ordered before it waits.
func TestARunThatWaitsForAnApprovalStaysForAnAnswer(t *testing.T) {
	t.Parallel()
	_, ctx, _, r := begunRun(t)
	err := r.Park(ctx, aaif.RunAwaitingApproval, func(c *state.Checkpoint) error {
		c.Mesh.Pending = string(aaif.RunMigrating)
		c.Mesh.Migration = &state.Migration{ID: "m", Phase: state.PhaseAsked, To: intents.MigrateFile}
		c.Mesh.Waits = []state.Wait{{Entity: "human.bob", TaskID: "t"}}
		return nil
	})
	if c := r.cp.Load(); !errors.Is(err, ErrParked) || c.Doc.Status != aaif.RunAwaitingApproval || c.Mesh.Pending != "" || c.Mesh.Migration.Phase != state.PhaseAborted {
		t.Errorf("%v: %s, pending %q, the move is %s", err, c.Doc.Status, c.Mesh.Pending, c.Mesh.Migration.Phase)
	}
}
