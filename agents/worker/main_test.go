package worker_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

func TestMain(m *testing.M) {
	// nats.go's first asynchronous publish, over a connection that is just being
	// closed, leaves a goroutine that waits for the connection's end.
	goleak.VerifyTestMain(natstest.AtOnce(m, 8), goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}
