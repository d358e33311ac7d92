package jetstream_test

import (
	"context"
	"testing"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A stream that was made anew while the connection was lost, as one in memory is when its servers
// restart, counts from the beginning. Its messages are new all the same.
func TestReplayFollowsAStreamThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	opts := jetstream.Options{Only: []string{jetstream.StreamBus, jetstream.StreamHuman}}
	apply(t, js, opts)
	publish(t, js, "bus.a", "human.b", "bus.a", "bus.a", "bus.a", "human.b")
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	n, last := 0, ""
	for msg, err := range jetstream.Replay(ctx, js, jetstream.ReplayOptions{Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		last = string(msg.Data)
		switch n++; n {
		case 6:
			for _, name := range opts.Only {
				if err := js.DeleteStream(ctx, name); err != nil {
					t.Fatal(err)
				}
			}
			apply(t, js, opts)
			srv = natstest.Restart(t, srv)
			waitFor(t, "the connection", func() bool {
				_, err := js.AccountInfo(brief(t))
				return err == nil
			})
			publish(t, js, "bus.new")
		case 7:
			publish(t, js, "human.new")
		case 8:
			cancel()
		}
	}
	if n != 8 || last != "human.new 0" {
		t.Errorf("%d messages, the last is %q", n, last)
	}
}
