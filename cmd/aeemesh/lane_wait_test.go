package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Finding D2 of the reliability review, and fault 2 of the operator's tour.
func TestTheDurableLaneIsLookedForAgain(t *testing.T) {
	t.Parallel()
	conn := natstest.Conn(t, natstest.Run(t, natsd.Config{}))
	var there atomic.Bool
	looks := make(chan struct{}, 1000)
	look := func(context.Context) error {
		looks <- struct{}{}
		if there.Load() {
			return nil
		}
		return errors.New("not yet")
	}
	var came atomic.Bool
	w := awaitLane(t.Context(), conn, time.Millisecond, look, errors.New("at first"), func() { came.Store(true) })
	for range 3 {
		<-looks
	}
	if err := w.lacks(); err.Error() != "not yet" || came.Load() {
		t.Errorf("it lacks %v, came %v", err, came.Load())
	}
	there.Store(true)
	<-w.ready
	if !came.Load() {
		t.Error("ready before what is to be done first")
	}
}

func TestTheHelpForALaneThatIsNotThere(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"aeemesh auth perms agent.echo --durable": fmt.Errorf("look at AEE_WORK: %w", jetstream.ErrDenied),
		"aeemesh apply":  lackingError{"AEE_WORK"},
		"jetstream {}":   fmt.Errorf("look at AEE_WORK: %w", jetstream.ErrUnavailable),
		"aeemesh doctor": context.DeadlineExceeded,
	} {
		if got := laneHelp(err, "agent.echo"); !strings.Contains(got, want) {
			t.Errorf("%v: %s", err, got)
		}
	}
}
