// Package workers asks running workers about themselves: it lists them ([Discover]), reads their
// health ([Ask], [LaneOf]), and counts those that take durable tasks ([TakersOf]).
//
// A NATS user may lack the permission to ask. The server reports that to the connection and not to
// the request, so that the request would wait until it times out; here it fails at once
// ([UntilRefused], [MayNotAsk]).
package workers
