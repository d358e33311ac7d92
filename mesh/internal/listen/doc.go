// Package listen subscribes to NATS subjects, and ends subscriptions without losing what has
// arrived: subscriptions that share a goroutine ([Shared]), whether the server has refused
// one ([RoundTrip], [Refused]), which answers are not due there ([Redirected]), and the end of
// several together ([Drain]).
//
// It stands on the NATS client alone.
package listen
