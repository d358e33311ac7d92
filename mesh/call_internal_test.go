package mesh

import (
	"context"
	"errors"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/state"
)

// A call that begins while its run is parked or lost must not change the run's record.
func TestARunThatDoesNotGoOnHereRecordsNoCall(t *testing.T) {
	t.Parallel()
	r := callRun{&Run{end: ErrParked}}
	err := r.Change(func(*state.Checkpoint) error {
		t.Error("the record is changed")
		return nil
	})
	if !errors.Is(err, ErrParked) {
		t.Errorf("got %v", err)
	}
}

// A run that waits for a call is interrupted when it is to pause or to move within the mesh, and
// when its worker drains. A run that leaves the mesh waits on: another platform would have to send
// the call again.
func TestARunThatLeavesTheMeshWaitsForItsCalls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pending aaif.RunStatus
		to      string
		stops   bool
	}{
		{aaif.RunPaused, "", true},
		{aaif.RunMigrating, "instance-1", true},
		{aaif.RunMigrating, "https://platform.example", false},
	} {
		drained, drain := context.WithCancel(t.Context())
		r := &Run{lane: &lane{undrained: drained}, pending: make(chan struct{})}
		cp := state.New("agent.lead", "task-0001", "")
		cp.Mesh.Pending = string(c.pending)
		if c.to != "" {
			cp.Mesh.Migration = &state.Migration{To: c.to, Phase: state.PhaseAsked}
		}
		r.cp.Store(cp)
		stopped := make(chan struct{}, 2)
		release := callRun{r}.OnStop(func() { stopped <- struct{}{} })
		r.signalPending(true)
		if got := len(stopped) == 1; got != c.stops {
			t.Errorf("%s to %q: interrupted is %v", c.pending, c.to, got)
		}
		if c.stops {
			<-stopped
		}
		drain()
		<-stopped // the worker drains
		release()
	}
}
