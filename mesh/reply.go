package mesh

import (
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// answer sends an error as the terminal envelope, without its details if they cannot be
// sent.
func (h *host) answer(t *Task, problem *envelope.Error) {
	problem = t.handed.ErrorForCaller(problem)
	err := h.sendReply(t, t.answer(envelope.TypeError, problem.Payload()), problem)
	if fault.Unsendable(err) {
		problem = fault.Bare(problem)
		err = h.sendReply(t, t.answer(envelope.TypeError, problem.Payload()), problem)
	}
	if err != nil {
		h.counts.replyFailed.Add(1)
		h.log.Warn("reply not sent", "id", t.Envelope.ID, "corr", t.Envelope.Corr, "to", t.Envelope.From, "err", err)
	}
}

// sendReply signs, encodes and publishes one reply, in the sender's own
// encoding, and after a terminal one the empty message that ends a stream.
func (h *host) sendReply(t *Task, e *envelope.Envelope, problem *envelope.Error) error {
	e.From = h.Entity // a salvaged task may have another to
	t.span.Inject(e)
	to := t.reply
	if to == "" {
		// The sender waits for no reply. A person gets it in the inbox.
		if subject.EntityType(e.To) != subject.TypeHuman || e.Type == envelope.TypeStream {
			return nil
		}
		inbox, err := h.node.subjects.Live(e.To)
		if err != nil {
			return nil
		}
		to = inbox
	}
	if t.ask {
		return h.sendText(t, e, problem)
	}
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	var err error
	if *buf, err = wire.AppendSigned((*buf)[:0], e, h.Signer, t.cbor); err != nil {
		return fmt.Errorf("encode reply: %w", fault.Output(err))
	}
	if err := h.node.sender.Publish(to, *buf, t.replyHeader(e, problem)); err != nil {
		return fmt.Errorf("publish reply: %w", err)
	}
	if e.Type != envelope.TypeStream {
		h.node.journal.RememberSent(h.Entity, e, *buf, t.cbor)
		if t.Streaming() {
			return h.node.sender.Publish(to, nil, nil)
		}
	}
	return nil
}

// replyHeader returns the headers of a reply, nil if it needs none.
func (t *Task) replyHeader(e *envelope.Envelope, problem *envelope.Error) nats.Header {
	var header nats.Header
	set := func(key, value string) {
		if header == nil {
			header = nats.Header{}
		}
		header[key] = []string{value}
	}
	if t.cbor {
		set(wire.HeaderContentType, envelope.ContentCBOR)
	}
	if parent := t.span.Traceparent(); parent != "" {
		set(t.host.TraceHeader, parent)
	}
	if t.handed != nil {
		set(wire.HeaderHandoff, t.handed.Header())
	}
	if problem != nil {
		set(micro.ErrorHeader, wire.HeaderText(problem.Message))
		set(micro.ErrorCodeHeader, wire.HeaderText(string(problem.Code)))
	}
	if t.Streaming() && e.Type.Terminal() {
		set(wire.HeaderStreamCount, strconv.Itoa(t.seq))
	}
	return header
}

// sendable fails with E_TOO_LARGE if a reply of size bytes exceeds the server's max_payload; more is
// the size of headers beyond the usual ones.
func (n *Node) sendable(size, more int) error {
	if limit := int(n.conn.MaxPayload()) - headerRoom - more; limit > 0 && size > limit {
		return envelope.Errorf(envelope.CodeTooLarge, "the answer has %d bytes, a message takes %d", size, limit)
	}
	return nil
}

// headerRoom is the part of a message that is reserved for the headers of a reply.
const headerRoom = 4 << 10
