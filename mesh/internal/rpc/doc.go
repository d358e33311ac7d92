// Package rpc sends requests over NATS and takes their answers, many at once: one
// subscription, reply subjects that are used again, requests of several goroutines in one
// write. It knows nothing of envelopes.
package rpc
