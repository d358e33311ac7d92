package jetstream_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/subject"
)

// Finding D2 of the reliability review, and fault 2 of the operator's tour.
func TestTheDurableLaneIsLookedForAgain(t *testing.T) {
	t.Parallel()
	js := start(t)
	var came atomic.Bool
	w := jetstream.AwaitLane(t.Context(), js, subject.Map{}, time.Millisecond, errors.New("at first"), func() { came.Store(true) })
	waitFor(t, "another look", func() bool {
		var missing jetstream.MissingError
		return errors.As(w.Lacks(), &missing) && len(missing) == 6
	})
	select {
	case <-w.Ready():
		t.Fatal("it is there")
	default:
	}
	apply(t, js, jetstream.Options{})
	<-w.Ready()
	if !came.Load() {
		t.Error("ready before what is to be done first")
	}
	if err := jetstream.LaneLacks(testContext(t), js, subject.Map{}); err != nil {
		t.Error(err)
	}
	core := connect(t, natstest.Run(t, natsd.Config{}))
	if err := jetstream.LaneLacks(testContext(t), core, subject.Map{}); !errors.Is(err, jetstream.ErrUnavailable) {
		t.Errorf("without JetStream: %v", err)
	}
}
