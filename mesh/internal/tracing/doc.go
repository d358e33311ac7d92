// Package tracing carries W3C trace contexts between contexts of Go, the field trace of
// envelopes and the headers of NATS messages.
package tracing
