package mesh

import (
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
)

// NewCommand returns the envelope of a command, unsigned. Commands are urgent. The envelope of a
// command that JSON cannot hold, such as one with an invalid Result, has no payload, and cannot be sent.
func NewCommand(from, to string, cmd intents.Command) *envelope.Envelope {
	return sender.NewCommand(from, to, cmd)
}

// Commands on the control subject, to which all workers of an entity subscribe: their
// envelopes, and one attempt to send them. Package client queues a command that no
// worker answers.

// newCommand returns the envelope of a command in the agent's name, signed.
func (h *host) newCommand(to string, cmd intents.Command) (*envelope.Envelope, error) {
	e := NewCommand(h.Entity, to, cmd)
	return e, h.sign(e)
}

// publishCancel sends a cancel, in the agent's name, to all workers of an entity, and does
// not wait for an answer.
func (h *host) publishCancel(to string, what intents.CancelTask) error {
	e, err := h.newCommand(to, what)
	if err != nil {
		return err
	}
	return h.node.sender.PublishControl(e)
}
