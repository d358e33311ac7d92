package jetstream

import (
	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
)

// ReplyInbox returns a new reply subject of a connection. Unlike those of [nats.Conn.NewInbox] it
// cannot be computed from others that the process has used.
func ReplyInbox(nc *nats.Conn) string { return api.Inbox(nc) }
