package jetstream_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A consumer was just made, and the worker's server does not know yet where its leader is: it
// refuses the first requests for tasks. That is no trouble until it lasts; then the lane says so
// once, and does not say that it works until it does.
func TestALaneIsNotDegradedByTheFirstRequestsOfANewConsumer(t *testing.T) {
	t.Parallel()
	nc := natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true}))
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, js, jetstream.Options{Only: []string{jetstream.StreamWork, jetstream.StreamSchedule}})
	relay := func(subj string) *nats.Subscription { // to JetStream
		sub, err := nc.Subscribe("relay."+subj, func(m *nats.Msg) {
			m.Subject = "$JS.API." + strings.TrimPrefix(m.Subject, "relay.")
			_ = nc.PublishMsg(m)
		})
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	relay("STREAM.>")
	for _, what := range []string{"CREATE", "INFO"} {
		relay("CONSUMER." + what + ".>")
	}
	relayed, err := natsjs.NewWithAPIPrefix(nc, "relay")
	if err != nil {
		t.Fatal(err)
	}
	for entity, beat := range map[string]time.Duration{"agent.brief": time.Hour, "agent.long": 20 * time.Millisecond} {
		spec, err := jetstream.WorkConsumer(subject.Map{}, "normal", entity, 0)
		if err != nil {
			t.Fatal(err)
		}
		var looks atomic.Int64
		asks, err := nc.Subscribe("relay.CONSUMER.INFO.AEE_WORK."+spec.Config.Durable, func(*nats.Msg) { looks.Add(1) })
		if err != nil {
			t.Fatal(err)
		}
		w := startLane(t, relayed, subject.Map{}, entity, 1, jetstream.LaneOptions{Create: true, Heartbeat: beat})
		never := []jetstream.LaneState{jetstream.LaneDeaf, jetstream.LaneDegraded}
		if entity == "agent.long" {
			w.said(t, jetstream.LaneDeaf)
			never = []jetstream.LaneState{jetstream.LaneWorking}
		}
		since := looks.Load()
		natstest.Eventually(t, "the lane looks at its consumer again and again", func() bool { return looks.Load() > since+4 })
		w.mu.Lock()
		for _, h := range w.health {
			if slices.Contains(never, h.State) {
				t.Errorf("%s: %s: %s", entity, h.State, h.Reason)
			}
		}
		w.mu.Unlock()
		next := relay("CONSUMER.MSG.NEXT.>")
		submit(t, jetstream.NewQueue(js, subject.Map{}), jetstream.Submission{Entity: entity, ID: "t", Data: []byte("{}")})
		w.done(t)
		natstest.Eventually(t, "the lane works", func() bool { return w.Health().State == jetstream.LaneWorking })
		_ = next.Unsubscribe()
		_ = asks.Unsubscribe()
	}
}
