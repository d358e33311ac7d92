package natstest

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// VerifyMain runs a package's tests, and fails if they leave goroutines behind: all but
// those that NATS itself may leave.
//
//   - The first asynchronous publish of nats.go, over a connection that is being closed, leaves
//     a goroutine that waits for the end of the connection.
//   - A nats-server that is shut down while it makes a stream may leave the goroutine of
//     that stream's file, and with it the clock that files share.
//
// On a busy machine servers and connections take a while to end: what still runs is looked for
// again for half a minute.
func VerifyMain(m goleak.TestingM) {
	code := m.Run()
	if code != 0 {
		os.Exit(code)
	}
	err := leaked()
	for end := time.Now().Add(leakPatience); err != nil && time.Now().Before(end); {
		err = leaked()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "all tests passed, but goroutines are left: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

const leakPatience = 30 * time.Second

// leaked looks for a second or so for goroutines that do not end.
func leaked() error {
	return goleak.Find(
		goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
	)
}
