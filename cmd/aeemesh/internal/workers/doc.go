// Package workers asks running workers about themselves: which there are
// ([Discover]), how they are ([Ask], [LaneOf]), and whether they take durable
// tasks ([TakersOf]).
//
// A NATS user may lack the permission to ask. The server reports that to the
// connection and not to the request, so that the request would wait until it
// times out; here it fails at once ([RefusedTo], [MayNotAsk]).
package workers
