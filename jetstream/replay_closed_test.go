package jetstream_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
)

// A replay that follows its streams says that it can do so no longer.
func TestAReplayWhoseConnectionIsClosedSaysSo(t *testing.T) {
	t.Parallel()
	js := connect(t, natstest.Run(t, natsd.Config{JetStream: true}))
	apply(t, js, jetstream.Options{Only: []string{jetstream.StreamBus, jetstream.StreamHuman}})
	publish(t, js, "bus.one")
	var last error
	var closed time.Time
	for _, err := range jetstream.Replay(testContext(t), js, jetstream.ReplayOptions{Follow: true}) {
		if last = err; err == nil {
			js.Conn().Close()
			closed = time.Now()
		}
	}
	if took := time.Since(closed); took > 3*time.Second { // it looks at the streams every 5 s
		t.Errorf("it said so after %v", took)
	}
	if !errors.Is(last, nats.ErrConnectionClosed) {
		t.Errorf("it ended with %v", last)
	}
}
