package state_test

import (
	"errors"
	"testing"

	"github.com/aeemesh/aeemesh/state"
)

func TestReadHeaderRefuses(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]error{
		``:                            state.ErrInvalid,
		`[]`:                          state.ErrInvalid,
		`null`:                        state.ErrInvalid,
		`{}`:                          state.ErrInvalid,
		`{"sc_standard":"SC-006"} {}`: state.ErrInvalid,
		`{"sc_standard":"SC-006","run_id":"r","run_id":"r"}`:                      state.ErrInvalid,
		`{"sc_standard":"SC-006","run_id":1}`:                                     state.ErrInvalid,
		`{"sc_standard":"SC-006","x-aeemesh":null}`:                               state.ErrInvalid,
		`{"sc_standard":"SC-006","x-aeemesh":{"format":1}}`:                       state.ErrInvalid,
		`{"sc_standard":"SC-006","x-aeemesh":{"entity":"agent.a"}}`:               state.ErrInvalid,
		`{"sc_standard":"SC-006","x-aeemesh":{"format":1000,"entity":"agent.a"}}`: state.ErrNewer,
		`{"sc_standard":"SC-006","x-aeemesh":{"format":1,"entity":"agent.a"}}`:    nil,
		`{"sc_standard":"SC-006"}`:                                                nil, // of another platform
	} {
		if _, err := state.ReadHeader([]byte(doc)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", doc, err, want)
		}
	}
}
