package mesh

import (
	"errors"
	"testing"

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
