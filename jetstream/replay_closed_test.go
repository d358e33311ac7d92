package jetstream_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/internal/replay"
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
	opts := replay.Options{Filters: map[string][]string{jetstream.StreamBus: {"bus.>"}}, Follow: true, Look: time.Hour}
	for _, err := range replay.Messages(testContext(t), js, opts) {
		if last = err; err == nil {
			js.Conn().Close()
		}
	}
	if !errors.Is(last, nats.ErrConnectionClosed) {
		t.Errorf("it ended with %v", last)
	}
}
