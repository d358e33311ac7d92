// Package journal keeps the envelopes that a process sent and received last, for
// aee.context.fetch, and the refutations of contexts.
package journal
