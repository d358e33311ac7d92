package sender

import (
	"context"
	"errors"
	"log/slog"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/holders"
	"github.com/aeemesh/aeemesh/mesh/internal/journal"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/rpc"
	"github.com/aeemesh/aeemesh/mesh/internal/tracing"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// Sender sends envelopes over a connection, and receives the answers of live tasks.
type Sender struct {
	Conn     *nats.Conn
	Subjects subject.Map
	Prefix   string       // of the subjects
	Signer   *sign.Signer // nil: envelopes are unsigned
	Answers  answers.Reader
	Replies  *rpc.Exchanger
	Holders  *holders.Watch
	Journal  *journal.Journal
	Log      *slog.Logger
}

// Line returns a number that identifies the current connection to the server, 0 without one.
func (s *Sender) Line() uint64 {
	if !s.Conn.IsConnected() {
		return 0
	}
	return s.Conn.Stats().Reconnects + 1
}

// Encode signs a task for one of the lanes and encodes it into buf. It returns the headers of the
// message; nil: none.
func (s *Sender) Encode(ctx context.Context, task *envelope.Envelope, durable, cbor bool, buf *[]byte) (header nats.Header, err error) {
	if err := wire.Bounded(task); err != nil { // its receiver would refuse it
		return nil, envelope.Errorf(envelope.CodeTooLarge, "%v", err)
	}
	if err := wire.CheckIntent(task); err != nil {
		return nil, err
	}
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		tracing.Inject(sc, task)
		header = nats.Header{tracing.Header(ctx): {tracing.Traceparent(ctx)}}
	}
	signer := s.Signer
	if task.Sig != nil {
		signer = nil
	}
	if signer != nil {
		if err := requires.Bind(task, s.Prefix, durable); err != nil {
			return nil, err
		}
	}
	if cbor {
		if header == nil {
			header = nats.Header{}
		}
		header[wire.HeaderContentType] = []string{envelope.ContentCBOR}
	}
	if *buf, err = wire.AppendSigned((*buf)[:0], task, signer, cbor); err != nil {
		return header, err
	}
	if limit := s.Conn.MaxPayload(); limit > 0 && int64(len(*buf)) > limit {
		return header, envelope.Errorf(envelope.CodeTooLarge, "the message has %d bytes, and the server takes %d (max_payload)", len(*buf), limit)
	}
	return header, nil
}

// Publish sends every message except requests (see internal/rpc).
func (s *Sender) Publish(to string, data []byte, header nats.Header) error {
	if header == nil {
		return s.Conn.Publish(to, data)
	}
	return s.Conn.PublishMsg(&nats.Msg{Subject: to, Data: data, Header: header})
}

// ErrLiveOnly says that a node has no durable lane.
var ErrLiveOnly = errors.New("this node has no durable lane: set Config.Durable")
