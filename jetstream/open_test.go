package jetstream

import (
	"reflect"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// TestALostEnvelopeIsNotRemembered of mesh/internal/stream has what follows from it. nats.go does not say
// which timeout is set, and to wait for it would take that long.
func TestNewBoundsTheWaitForAcknowledgements(t *testing.T) {
	t.Parallel()
	conn := natstest.Conn(t, natstest.Run(t, natsd.Config{}))
	for _, domain := range []string{"", "hub"} {
		js, err := New(conn, domain)
		if err != nil {
			t.Fatal(err)
		}
		timeout := reflect.ValueOf(js).Elem().FieldByName("publisher").Elem().FieldByName("ackTimeout")
		if got := time.Duration(timeout.Int()); got != 5*time.Second {
			t.Errorf("domain %q: %v", domain, got)
		}
	}
}
