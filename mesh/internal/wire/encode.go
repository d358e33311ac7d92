package wire

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
)

// MustJSON encodes values that cannot fail to encode.
func MustJSON(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return raw
}

// buffers hold encoded envelopes until the connection has copied them.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 2048); return &b }}

// GetBuffer returns a buffer for an encoded envelope; see PutBuffer.
func GetBuffer() *[]byte { return buffers.Get().(*[]byte) }

// PutBuffer returns a buffer to the pool, unless it has grown beyond 64 KiB.
func PutBuffer(b *[]byte) {
	if cap(*b) <= 64<<10 {
		buffers.Put(b)
	}
}

// AppendSigned appends e in one of the two encodings, signed unless s is nil.
func AppendSigned(dst []byte, e *envelope.Envelope, s *sign.Signer, cbor bool) ([]byte, error) {
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
