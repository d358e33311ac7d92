// Package denial reports what a NATS server has denied a connection: publishing or subscribing to
// a subject.
//
// The server reports a denial to the connection, as a permissions violation, and not to the
// request, which is never answered. nats.go keeps only the last error of a connection: of two
// denials at a time one would be lost, and any later error would hide both. This package receives
// every denial, before the application's error handler does, and keeps the last 64 of each
// connection.
package denial
