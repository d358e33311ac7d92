// Package listen subscribes to NATS subjects, and ends subscriptions without losing what has
// arrived: [Shared] handles many subscriptions on one goroutine, [RoundTrip] and [Refused] find
// out whether the server has refused one, [Redirected] detects answers to other requests,
// [PerConn] shares what the nodes of a connection need once, and [Drain] ends several
// subscriptions together.
//
// It stands on the NATS client alone.
package listen
