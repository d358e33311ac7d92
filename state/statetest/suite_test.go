package statetest_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/statetest"
)

func TestMem(t *testing.T) {
	t.Parallel()
	statetest.Run(t, func(*testing.T) state.Store { return new(state.Mem) })
}
