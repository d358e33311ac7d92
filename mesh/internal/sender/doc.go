// Package sender sends envelopes: it signs and encodes a task, publishes it, and waits for
// its answers, or for the answer of the worker that applies a command. It needs a
// connection and no agent.
package sender
