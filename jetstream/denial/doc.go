// Package denial tells what a NATS server has denied a connection: publishing to a subject, or
// subscribing to one.
//
// The server reports a denial to the connection, as a permissions violation, and not to the
// request, which is never answered. nats.go keeps only the last error of a connection, so of two
// denials at a time one would be lost, and any later error hides both. This package hears every
// one, before the error handler of the application, and keeps the last 64 of each connection.
package denial
