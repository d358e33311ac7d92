package sign

import (
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/aeemesh/aeemesh/envelope"
)

// AppendSigned appends the bytes that a signature of e covers: RFC 8785 JSON of one
// object whose members are corr, from, id, intent, payload, reply_to, requires, to, ts,
// type and v (AEE, Signatures, plus requires). A member that the envelope does not have
// is null here. docs/signing.md describes the same rule, with test vectors.
//
// A number in payload or requires that I-JSON cannot represent is an error that wraps
// [envelope.ErrNumber]: otherwise two different envelopes would have the same signature.
// On error dst is returned unchanged.
func AppendSigned(dst []byte, e *envelope.Envelope) ([]byte, error) {
	b := append(dst, `{"corr":`...)
	b = envelope.AppendString(b, e.Corr)
	b = append(b, `,"from":`...)
	b = envelope.AppendString(b, e.From)
	b = append(b, `,"id":`...)
	b = envelope.AppendString(b, e.ID)
	b = append(b, `,"intent":`...)
	b = envelope.AppendString(b, e.Intent)
	b = append(b, `,"payload":`...)
	b, err := envelope.AppendCanonical(b, e.Payload)
	if err != nil {
		return dst, fmt.Errorf("canonical form of payload: %w", err)
	}
	b = append(b, `,"reply_to":`...)
	b = e.AppendReplyTo(b)
	b = append(b, `,"requires":`...)
	if e.Requires == nil {
		b = append(b, "null"...)
	} else if b, err = envelope.AppendCanonical(b, e.Requires); err != nil {
		return dst, fmt.Errorf("canonical form of requires: %w", err)
	}
	b = append(b, `,"to":`...)
	b = envelope.AppendString(b, e.To)
	b = append(b, `,"ts":`...)
	b = envelope.AppendString(b, e.TS)
	b = append(b, `,"type":`...)
	b = envelope.AppendString(b, string(e.Type))
	b = append(b, `,"v":`...)
	b = envelope.AppendString(b, e.V)
	return append(b, '}'), nil
}

// validText reports whether the texts that a signature covers are valid UTF-8; they
// always are unless the envelope was built by hand.
func validText(e *envelope.Envelope) bool {
	for _, s := range [...]string{e.Corr, e.From, e.ID, e.Intent, e.ReplyTo, e.To, e.TS, string(e.Type), e.V} {
		if !utf8.ValidString(s) {
			return false
		}
	}
	return true
}

// buffers holds buffers for the canonical bytes.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 2048); return &b }}

// keepBuffer is the largest buffer that is put back into the pool, so that one huge
// envelope does not keep its memory allocated.
const keepBuffer = 64 << 10

func putBuffer(p *[]byte, b []byte) {
	if cap(b) <= keepBuffer {
		*p = b[:0]
		buffers.Put(p)
	}
}
