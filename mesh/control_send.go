package mesh

import (
	"context"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/rpc"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// Commands on the control subject, to which all workers of an entity subscribe: their
// envelopes, and one attempt to send them. send_command.go queues a command that no
// worker answers.

// NewCommand returns the envelope of a command, unsigned. Commands are urgent.
func NewCommand(from, to string, cmd intents.Command) *envelope.Envelope {
	e := envelope.New(envelope.TypeTask, from, to, cmd.CommandIntent(), wire.MustJSON(cmd))
	e.Priority = envelope.PriorityUrgent
	return e
}

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
	return h.node.publishControl(e)
}

// publishControl sends a command to all workers of its addressee, and does not wait for an
// answer.
func (n *Node) publishControl(e *envelope.Envelope) error {
	to, err := n.subjects.Ctl(e.To)
	if err != nil {
		return err
	}
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	header, err := n.encode(context.Background(), e, false, false, buf)
	if err != nil {
		return err
	}
	return n.publish(to, *buf, header)
}

// requestControl sends a command to all workers of its addressee, and waits for the first
// answer. Of the workers only the one that applies the command answers.
func (n *Node) requestControl(ctx context.Context, e *envelope.Envelope, wait time.Duration) (*envelope.Envelope, error) {
	to, err := n.subjects.Ctl(e.To)
	if err != nil {
		return nil, err
	}
	var body []byte
	header, err := n.encode(ctx, e, false, false, &body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return n.exchange(ctx, time.Now().Add(wait), e, rpc.Request{To: to, Header: header, Data: body}, nil)
}
