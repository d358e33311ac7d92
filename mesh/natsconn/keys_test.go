package natsconn_test

import (
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// An agent's signer is checked while another agent on the same connection replaces the error handler.
// Only the race detector sees that the two do not disturb each other.
func TestASignerIsCheckedWhileTheConnectionIsUsed(t *testing.T) {
	t.Parallel()
	signer, _, err := sign.NewKey("ada", sign.Ed25519, ">")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect(natstest.Run(t, natsd.Config{}).ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var both sync.WaitGroup
	both.Go(func() { denial.Listen(conn, func(denial.Denial) {})() })
	both.Go(func() {
		if err := natsconn.CheckSigner(conn, signer); err != nil {
			t.Error(err)
		}
	})
	both.Wait()
}
