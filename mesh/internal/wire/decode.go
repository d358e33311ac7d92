package wire

import (
	"encoding/json"
	"mime"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// contentType is the media type of a message; "" where it names none.
func contentType(msg *nats.Msg) (kind, value string) {
	if len(msg.Header) == 0 {
		return "", ""
	}
	switch value = msg.Header.Get(HeaderContentType); value {
	case "", envelope.ContentJSON, envelope.ContentCBOR:
		return value, value
	}
	kind, _, err := mime.ParseMediaType(value)
	if err != nil {
		kind = "?"
	}
	return kind, value
}

// IsCBOR reports whether a message says that it is CBOR. Decoding CBOR costs several
// times as much as JSON, so it is not done on a goroutine that others wait for.
func IsCBOR(msg *nats.Msg) bool {
	kind, _ := contentType(msg)
	return cborType(kind)
}

func cborType(kind string) bool {
	return kind == envelope.ContentCBOR || strings.HasSuffix(kind, "+cbor")
}

// Decode reads a message by its Content-Type. cbor says which encoding the
// sender speaks, as far as that is known.
func Decode(msg *nats.Msg, limits envelope.Limits) (env *envelope.Envelope, cbor bool, err error) {
	switch kind, value := contentType(msg); {
	case cborType(kind):
		env, err = envelope.ParseCBORLimits(msg.Data, limits)
		return env, true, err
	case kind == "", kind == envelope.ContentJSON, kind == "text/plain", strings.HasSuffix(kind, "+json"):
		env, err = envelope.ParseLimits(msg.Data, limits)
		return env, false, err
	default:
		return nil, false, envelope.Errorf(envelope.CodeEncoding, "Content-Type %q is neither %s nor %s", clip.Text(value, 128), envelope.ContentJSON, envelope.ContentCBOR)
	}
}

// Receive is [Decode] with [Bounded], for messages that workers receive.
func Receive(msg *nats.Msg, limits envelope.Limits) (env *envelope.Envelope, cbor bool, err error) {
	if env, cbor, err = Decode(msg, limits); err == nil {
		err = Bounded(env)
	}
	return env, cbor, err
}

// IsPubAck reports whether data is the acknowledgement of a JetStream stream.
func IsPubAck(data []byte) bool {
	var ack struct {
		Stream string `json:"stream"`
		Seq    uint64 `json:"seq"`
		V      string `json:"v"`
	}
	return json.Unmarshal(data, &ack) == nil && ack.Stream != "" && ack.Seq > 0 && ack.V == ""
}
