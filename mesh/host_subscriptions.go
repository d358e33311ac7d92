package mesh

import (
	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/jetstream"
)

// heedful returns a handler that calls handle for messages that were published to the subject
// and whose reply subject, if they have one, is an inbox. It drops all others.
func (h *host) heedful(subject string, handle nats.MsgHandler) nats.MsgHandler {
	handle = h.requireInbox(handle)
	return func(msg *nats.Msg) {
		if !jetstream.Published(msg, subject) {
			h.counts.dropped.Add(1)
			h.node.tel.Refused(h.Entity, "stray")
			return
		}
		handle(msg)
	}
}
