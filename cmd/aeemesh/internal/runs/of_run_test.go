package runs

import (
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// Commands are noted for tasks that are still to come, by any id that cannot be a run's.
func TestOnlyAUUIDOfVersion5IsTakenForARun(t *testing.T) {
	t.Parallel()
	run := state.RunID("agent.x", "task-0001")
	for name, want := range map[string]bool{
		run: true, strings.ToUpper(run): true, run[:8]: true, run[:20]: true, "ffffffff": true,
		envelope.NewID(): false, "0d3c8a52-4c6b-4f0e-9a43-3a0f1f6f7a10": false, "0d3c8a52-4c6b-5f0e-ca43-3a0f1f6f7a10": false,
		run + "0": false, "order-4711": false, "4bf92f3577b34da6a3ce929d0e0e4736": false,
	} {
		if got := ofRun(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
