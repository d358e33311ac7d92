package api_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A connection whose socket takes nothing keeps its lock while it writes. The requests of other
// connections of the process go on.
func TestABlockedConnectionHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	srv, line := natstest.Run(t, natsd.Config{}), natstest.NewCable(t)
	blocked := natstest.Conn(t, srv, nats.SetCustomDialer(line))
	_, forget := api.UntilDenied(t.Context(), blocked, "x")
	t.Cleanup(forget)
	line.Block(true)
	stuck := make(chan struct{})
	go func() {
		defer close(stuck)
		for line.Blocked() { // until the lock is held, and then in it
			_ = blocked.Publish("x", bytes.Repeat([]byte("x"), 64<<10))
		}
	}()
	for range 3 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, forget := api.UntilDenied(t.Context(), natstest.Conn(t, srv), "x")
			forget()
		}()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatal("a request waits for another connection")
		}
	}
	line.Block(false)
	<-stuck
}
