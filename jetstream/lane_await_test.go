package jetstream_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A worker that starts without the durable lane joins it later: finding D2 of the
// reliability review, and fault 2 of the operator's tour.
func TestTheDurableLaneIsLookedForAgain(t *testing.T) {
	t.Parallel()
	js := start(t)
	var came atomic.Bool
	w := jetstream.AwaitLane(t.Context(), js, subject.Map{}, false, time.Millisecond, errors.New("at first"), func() { came.Store(true) })
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
	if err := jetstream.LaneLacks(testContext(t), js, subject.Map{}, false); err != nil {
		t.Error(err)
	}
	core := connect(t, natstest.Run(t, natsd.Config{}))
	if err := jetstream.LaneLacks(testContext(t), core, subject.Map{}, false); !errors.Is(err, jetstream.ErrUnavailable) {
		t.Errorf("without JetStream: %v", err)
	}
}

// A fenced worker must not send requests that the server would refuse: each is a line in
// the server's log, and costs two seconds at each start.
func TestAFencedWorkerLooksAtItsStreamsOnly(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	sub, err := js.Conn().SubscribeSync("$JS.API.STREAM.INFO.*")
	if err != nil {
		t.Fatal(err)
	}
	if err := jetstream.LaneLacks(testContext(t), js, subject.Map{}, true); err != nil {
		t.Error(err)
	}
	const end = "$JS.API.STREAM.INFO.the-end"
	if err := js.Conn().Publish(end, nil); err != nil {
		t.Fatal(err)
	}
	var asked []string
	for {
		msg, err := sub.NextMsgWithContext(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if msg.Subject == end {
			break
		}
		asked = append(asked, strings.TrimPrefix(msg.Subject, "$JS.API.STREAM.INFO."))
	}
	slices.Sort(asked)
	if asked = slices.Compact(asked); !slices.Equal(asked, []string{"AEE_WORK", "KV_aee_slots", "KV_aee_state"}) {
		t.Errorf("asked for %q", asked)
	}
}
