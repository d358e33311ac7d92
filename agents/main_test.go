package agents_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// TestMain makes the test binary its own agent program: started again with
// programEnv set, it is the program that the tests of Program talk to.
func TestMain(m *testing.M) {
	if mode := os.Getenv(programEnv); mode != "" {
		os.Exit(runTestProgram(mode))
	}
	// nats.go's first asynchronous publish, over a connection that is just being
	// closed, leaves a goroutine that waits for the connection's end.
	goleak.VerifyTestMain(natstest.AtOnce(m, 16), goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}
