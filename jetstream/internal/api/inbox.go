package api

import (
	"crypto/rand"

	"github.com/nats-io/nats.go"
)

// Inbox returns a new reply subject that another program cannot compute. All that nats.go makes
// in one process are alike: who has seen one has few to try. And a worker may publish to every
// inbox.
func Inbox(nc *nats.Conn) string { return nc.NewInbox() + rand.Text() }
