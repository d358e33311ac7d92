// Package answers decides which messages are answers to a live or a durable task, and encodes
// replies before they are stored.
package answers
