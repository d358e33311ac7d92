package listen

import (
	"bytes"

	"github.com/nats-io/nats.go"
)

// Redirected reports whether a message on a reply subject is JetStream's answer to another
// request: a NATS user can name any subject of the account as the reply subject of its request
// (docs/nats-binding.md, "Redirected answers"). subject is the reply subject. Redirected returns
// false for an acknowledgement of a stream, which may also be the answer to a request that a
// stream has stored.
func Redirected(msg *nats.Msg, subject string) bool {
	if msg.Subject != subject {
		return true // the next message of a consumer keeps the subject that it is stored under
	}
	if len(msg.Header) == 0 {
		return bytes.HasPrefix(msg.Data, []byte(`{"type":"io.nats.jetstream.`))
	}
	return len(msg.Header[nats.JSStream]) > 0 || len(msg.Header["Status"]) > 0 && len(msg.Header["Description"]) > 0
}
