package jetstream

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// NATS permissions cover the subject of what a user publishes, and not its reply
// subject: a user may have the server send its answer anywhere in the account. So
// whoever may ask JetStream for anything can put three kinds of messages on every
// subject of it: an answer of the API or an acknowledgement, which are JSON without
// headers; and a copy of a message that it may read, body and headers included, which
// a direct get sends. The server adds to a copy where it comes from, and nobody who
// publishes does. What reads a stream tells both from what was published there.

// copied reports whether a message is such a copy.
func copied(h nats.Header) bool { return len(h[natsjs.StreamHeader]) > 0 }

// errCopied says that no user has published a message.
var errCopied = errors.New("a copy of a message, which the server has sent here as an answer")

// ofServer takes a header out of the answer to a direct get that the server has added
// to the message's own, of which some may have the same name: it adds them at the end.
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

// genuine reports whether a user published a message where it is stored, or the
// server wrote there that one is gone. An answer is none, in whatever form.
func genuine(h nats.Header, data []byte) bool {
	if copied(h) || len(h["Status"]) > 0 && len(h["Description"]) > 0 { // as in "404 Message Not Found"
		return false
	}
	return len(h) > 0 || !slices.ContainsFunc(answers, func(begin string) bool { return bytes.HasPrefix(data, []byte(begin)) })
}

// Published reports whether a user published a message that came to a subscription of
// one subject: whether it is not what the server sent there, as an answer to a request or
// as the next message of a consumer. Such a message still bears the subject that it is
// stored under.
func Published(m *nats.Msg, subject string) bool {
	return m.Subject == subject && !copied(m.Header) && (m.Reply != "" || genuine(m.Header, m.Data))
}

// answers are the ways in which answers of the API and acknowledgements begin. They
// have no headers.
var answers = []string{`{"type":"io.nats.jetstream.`, `{"stream":"`, `{"error":{`}

func (m Message) genuine() bool { return genuine(m.Header, m.Data) }

// withoutStrays leaves out what was not published.
func withoutStrays(messages iter.Seq2[Message, error]) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for m, err := range messages {
			if (err != nil || m.genuine()) && !yield(m, err) {
				return
			}
		}
	}
}

// newestPublished is newest that passes over what was not published. That takes
// permission to read the whole stream: without it, and where the stream keeps one
// message of a subject, there is nothing.
func newestPublished(ctx context.Context, js natsjs.JetStream, stream, subj string) (Message, error) {
	m, err := newest(ctx, js, stream, subj)
	if err != nil || m.genuine() {
		return m, err
	}
	m = Message{}
	for older, err := range scan(ctx, js, stream, subj, 1) {
		if err != nil {
			break
		}
		m = older
	}
	if m.Seq == 0 {
		return m, natsjs.ErrMsgNotFound
	}
	return m, nil
}

// errStray says that a message which no worker wrote stands where a run's record was.
var errStray = errors.New("a message that no worker wrote stands in the place of the record")
