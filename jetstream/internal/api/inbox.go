package api

import (
	"crypto/rand"

	"github.com/nats-io/nats.go"
)

// Inbox returns a new reply subject that another program cannot compute. Those that nats.go makes
// in one process are similar, so a program that has seen one needs few guesses, and a worker may
// publish to every inbox.
func Inbox(nc *nats.Conn) string { return nc.NewInbox() + rand.Text() }
