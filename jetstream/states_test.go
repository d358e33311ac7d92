package jetstream_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/statetest"
)

// interrupted is a store whose server can be started anew.
type interrupted struct {
	*jetstream.States
	t   *testing.T
	srv *natsd.Server
}

func (i *interrupted) Interrupt() { i.srv = natstest.Restart(i.t, i.srv) }

func TestStatesAreAStore(t *testing.T) {
	t.Parallel()
	t.Run("R1", func(t *testing.T) {
		t.Parallel()
		statetest.Run(t, func(t *testing.T) state.Store {
			srv := natstest.Run(t, natsd.Config{JetStream: true})
			js := jetstream.Gather(connect(t, srv))
			apply(t, js, jetstream.Options{Only: []string{jetstream.BucketState, jetstream.ObjectsState}})
			return &interrupted{jetstream.NewStates(js, subject.Map{}), t, srv}
		})
	})
}
