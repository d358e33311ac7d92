package listen

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// An agent stops while another one ends the last of the shared subscriptions, of which it has
// none itself: it does not wait for a goroutine that has ended.
func TestAnAgentWithoutASharedSubscriptionStops(t *testing.T) {
	t.Parallel()
	conn := natstest.Conn(t, natstest.Run(t, natsd.Config{}))
	e := NewShared(conn)
	for range 2000 {
		sub, err := e.Subscribe("a", "", func(*nats.Msg) {})
		if err != nil {
			t.Fatal(err)
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			e.Settle(nil)
			e.Forget(nil)
		}()
		e.Settle([]*nats.Subscription{sub})
		e.Forget([]*nats.Subscription{sub})
		select {
		case <-stopped:
		case <-time.After(10 * time.Second):
			t.Fatal("the other agent does not stop")
		}
	}
}
