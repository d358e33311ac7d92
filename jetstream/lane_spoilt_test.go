package jetstream_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A server whose configuration bounds requests (max_request_batch) sets that bound on each consumer,
// and sets it again after each update.
func TestAServerThatBoundsRequests(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(conf, []byte("jetstream { limits { max_request_batch: 3 } }"), 0o600); err != nil {
		t.Fatal(err)
	}
	js := connect(t, natstest.Run(t, natsd.Config{ConfigFile: conf, Port: natsd.RandomPort, JetStream: true}))
	opts := jetstream.Options{Entities: []string{"agent.x"}}
	apply(t, js, opts)
	for _, c := range apply(t, js, opts) {
		if c.Action != jetstream.ActionNone {
			t.Errorf("again: %s", c)
		}
	}
	q := jetstream.NewQueue(js, subject.Map{})
	const tasks = 20
	for range tasks {
		submit(t, q, jetstream.Submission{Entity: "agent.x", Data: []byte("task")})
	}
	for _, create := range []bool{true, false} {
		w := startLaneOf(t, js, q, "agent.x", 10, jetstream.LaneOptions{Create: create, Check: 50 * time.Millisecond})
		w.said(t, jetstream.LaneWorking)
		for range tasks / 2 {
			w.done(t)
		}
		if h := w.Health(); h.State != jetstream.LaneWorking {
			t.Errorf("its health: %+v", h)
		}
	}
}

// A consumer that a newer release has made is refused, too, if an operator has edited it.
func TestAConsumerOfANewerReleaseThatIsSpoiltIsRefused(t *testing.T) {
	t.Parallel()
	for name, s := range spoilt {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js := start(t)
			apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
			edit(t, js, func(c *natsjs.ConsumerConfig) {
				c.Metadata[jetstream.MetaTopology] = "99"
				s.change(c)
			})
			w := startLaneOf(t, js, jetstream.NewQueue(js, subject.Map{}), "agent.x", 4, jetstream.LaneOptions{Create: true, Check: 50 * time.Millisecond})
			w.saidThat(t, s.says, func(h jetstream.LaneHealth) bool { return strings.Contains(h.Reason, s.says) })
		})
	}
}
