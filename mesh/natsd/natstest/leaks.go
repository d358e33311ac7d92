package natstest

import "go.uber.org/goleak"

// VerifyMain runs a package's tests, and fails if they leave goroutines behind: all but
// those that NATS itself may leave.
//
//   - The first asynchronous publish of nats.go, over a connection that is being closed, leaves
//     a goroutine that waits for the end of the connection.
//   - A nats-server that is shut down while it makes a stream may leave the goroutine of
//     that stream's file, and with it the clock that files share.
func VerifyMain(m goleak.TestingM) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
	)
}
