// Package api makes single requests to JetStream: it reads messages of a stream, publishes,
// asks the API, and explains errors. It knows no stream or bucket by name; package jetstream
// does.
//
//   - [Request] and [Exchange] send a request and wait for its answer, or for the server's
//     report that the user may not send it ([UntilDenied]).
//   - [Newest], [Last], [Scan], [LeaderGet] and a [Reader] read messages. Answers of the
//     server that a user has redirected to a stream are strays: see [Message.Genuine].
//   - [Gather] publishes for many goroutines at once; [PublishOnce] publishes with a message id.
//   - [Explain] and [Uncertain] turn errors of nats.go into those of this package.
package api
