package api

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// NATS permissions cover the subject that a user publishes to, but not the reply subject:
// a user can make the server send its answer to any subject of the account. So a user who
// may send any JetStream request can put four kinds of messages on every subject of a
// stream: an answer of the API or the acknowledgement of a message that was stored, which are
// JSON without headers; the answer to the acknowledgement of a delivery, which has neither body
// nor headers; and the answer to a direct get, which is a copy of a message that the user may
// read, with its body and headers. The server adds headers to such a copy that say which message it
// is; a message that a user published has none of them. The readers of this package tell
// both from published messages. A message that no user published is called a stray.

// Copied reports whether a message is a copy that the server sent to answer a direct get.
func Copied(h nats.Header) bool { return len(h[natsjs.StreamHeader]) > 0 }

// ErrCopied: no user published the message.
var ErrCopied = errors.New("a copy of a message, with which the server answered a request; no user published it")

// ofServer removes the value of a header that the server added to the answer to a direct
// get, and returns it. The message itself may have a header of that name; the server adds
// its own at the end.
func ofServer(h nats.Header, name string) string {
	values := h[name]
	if len(values) == 0 {
		return ""
	}
	value := values[len(values)-1]
	if values = values[:len(values)-1]; len(values) == 0 {
		delete(h, name)
	} else {
		h[name] = values
	}
	return value
}

// genuine reports whether a user published a message on the subject where it is stored, or the
// server put a deletion marker there. An answer of the server is not genuine.
func genuine(h nats.Header, data []byte) bool {
	if Copied(h) || len(h["Status"]) > 0 && len(h["Description"]) > 0 { // as in "404 Message Not Found"
		return false
	}
	return len(h) > 0 || len(data) > 0 && !slices.ContainsFunc(answers, func(begin string) bool { return bytes.HasPrefix(data, []byte(begin)) })
}

// Published reports whether a user published a message that a subscription received: see
// jetstream.Published.
func Published(m *nats.Msg, subject string) bool {
	return m.Subject == subject && !Copied(m.Header) && (m.Reply != "" || genuine(m.Header, m.Data))
}

// answers lists how answers of the API and acknowledgements begin. They have no headers.
var answers = []string{`{"type":"io.nats.jetstream.`, `{"stream":"`, `{"error":{`}

// WithoutStrays skips strays.
func WithoutStrays(messages iter.Seq2[Message, error]) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for m, err := range messages {
			if (err != nil || m.Genuine()) && !yield(m, err) {
				return
			}
		}
	}
}

// NewestPublished is like [Newest] but skips strays. For that it needs permission to read the
// whole stream. Without it, or if the stream keeps one message of a subject, it finds nothing
// below a stray.
func NewestPublished(ctx context.Context, js natsjs.JetStream, stream, subj string) (Message, error) {
	_, m, err := LastAndPublished(ctx, js, stream, subj)
	return m, err
}

// LastAndPublished returns the sequence of the newest message on a subject, a stray too, and what
// [NewestPublished] returns.
func LastAndPublished(ctx context.Context, js natsjs.JetStream, stream, subj string) (last uint64, m Message, err error) {
	m, err = Newest(ctx, js, stream, subj)
	if last = m.Seq; err != nil || m.Genuine() {
		return last, m, err
	}
	m = Message{}
	for older, err := range Scan(ctx, js, stream, subj, 1) {
		if err != nil {
			break
		}
		m = older
	}
	if m.Seq == 0 {
		return last, m, natsjs.ErrMsgNotFound
	}
	return last, m, nil
}
