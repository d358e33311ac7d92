package mesh

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
)

// buffers hold encoded envelopes until the connection has copied them.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 2048); return &b }}

func getBuffer() *[]byte { return buffers.Get().(*[]byte) }

// putBuffer returns a buffer to the pool, unless it has grown beyond 64 KiB.
func putBuffer(b *[]byte) {
	if cap(*b) <= 64<<10 {
		buffers.Put(b)
	}
}

// answer sends an error as the terminal envelope, without its details if they cannot be
// sent.
func (h *host) answer(t *Task, problem *envelope.Error) {
	problem = t.errorForCaller(problem)
	err := h.sendReply(t, t.answer(envelope.TypeError, problem.Payload()), problem)
	if unsendable(err) {
		problem = bare(problem)
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
	t.span.inject(e)
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
	buf := getBuffer()
	defer putBuffer(buf)
	var err error
	if *buf, err = appendSigned((*buf)[:0], e, h.Signer, t.cbor); err != nil {
		return fmt.Errorf("encode reply: %w", outputError(err))
	}
	if err := h.node.publish(to, *buf, t.replyHeader(e, problem)); err != nil {
		return fmt.Errorf("publish reply: %w", err)
	}
	if e.Type != envelope.TypeStream {
		h.node.rememberSent(h.Entity, e, *buf, t.cbor)
		if t.Streaming() {
			return h.node.publish(to, nil, nil)
		}
	}
	return nil
}

// appendSigned appends e in one of the two encodings, signed unless s is nil.
func appendSigned(dst []byte, e *envelope.Envelope, s *sign.Signer, cbor bool) ([]byte, error) {
	switch {
	case s != nil && !cbor:
		return s.AppendJSON(dst, e)
	case s != nil:
		if err := s.Sign(e); err != nil {
			return dst, err
		}
	}
	if cbor {
		return e.AppendCBOR(dst)
	}
	return e.AppendJSON(dst)
}

// unsendable reports whether an error is about the envelope, which cannot be sent, and
// not about the connection.
func unsendable(err error) bool {
	return err != nil && (errors.Is(err, envelope.ErrNumber) || errors.Is(err, nats.ErrMaxPayload) || isCode(peerError(err), envelope.CodeOutputSchema) || isCode(peerError(err), envelope.CodeTooLarge))
}

// bare strips details and evidence and truncates code and message, so that the error
// always fits a message.
func bare(e *envelope.Error) *envelope.Error {
	c := publicError(e)
	c.Code, c.Message = envelope.Code(clip.Text(string(c.Code), 128)), clip.Text(c.Message, maxBare)
	return c
}

// maxBare bounds, in bytes, the message of a bare error.
const maxBare = 4 << 10

// outputError converts an error in encoding an answer to E_OUTPUT_SCHEMA: the agent made
// the invalid envelope, not the sender.
func outputError(err error) error {
	if errors.Is(err, envelope.ErrNumber) {
		return envelope.Errorf(envelope.CodeOutputSchema, "the agent's answer has a number that a double cannot represent, so it cannot be signed or encoded").WithCause(err)
	}
	return envelope.Errorf(envelope.CodeOutputSchema, "the agent's answer does not make a valid envelope: %s", peerError(err).Message).WithCause(err)
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
		set(headerContentType, envelope.ContentCBOR)
	}
	if parent := t.span.traceparent(); parent != "" {
		set(t.host.TraceHeader, parent)
	}
	if t.handed != nil {
		set(HeaderHandoff, t.handed.header())
	}
	if problem != nil {
		set(micro.ErrorHeader, headerText(problem.Message))
		set(micro.ErrorCodeHeader, headerText(string(problem.Code)))
	}
	if t.Streaming() && e.Type.Terminal() {
		set(HeaderStreamCount, strconv.Itoa(t.seq))
	}
	return header
}

// headerText converts a message to printable ASCII of at most 256 bytes, for one header
// line.
func headerText(s string) string {
	const limit = 256
	out := make([]byte, 0, min(len(s), limit))
	for i := 0; i < len(s) && len(out) < limit; i++ {
		if c := s[i]; c >= 0x20 && c < 0x7f {
			out = append(out, c)
		} else {
			out = append(out, ' ')
		}
	}
	return string(out)
}

// publish sends every message except requests (see internal/rpc).
func (n *Node) publish(to string, data []byte, header nats.Header) error {
	if header == nil {
		return n.conn.Publish(to, data)
	}
	return n.conn.PublishMsg(&nats.Msg{Subject: to, Data: data, Header: header})
}
