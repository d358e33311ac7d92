package jetstream_test

import (
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
)

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
