package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A stream compares Nats-Msg-Ids across all its subjects, and answers "duplicate" to
// every further message with the same id. Most ids here can be derived from public data:
// the id of a task, of a run, a sequence. So a user who may publish to one subject of a
// stream can publish with such an id first; the stream would then drop the real message
// with an answer that looks like success. Therefore "duplicate" is believed only if the
// message is found in the stream. If it is not there, the message is published again without that
// id. If the stream cannot be read for now, the outcome is unknown. Readers recognise a message that is stored twice by other means (a run's record, an
// envelope's id).

// PublishOnce publishes a message with a Nats-Msg-Id. If the server answers "duplicate", known
// says whether the message is stored at seq. If it is not, or known lacks the permission to look,
// PublishOnce publishes the message again with the id another ("": none). It fails with
// [ErrUncertain] if known fails for now, and with [ErrDenied] as soon as the server reports that
// the subject is not permitted.
func PublishOnce(ctx context.Context, js natsjs.JetStream, msg *nats.Msg, another string, known func(seq uint64) (bool, error)) (*natsjs.PubAck, error) {
	ctx, stop := UntilDenied(ctx, js.Conn(), msg.Subject+`"`)
	defer stop()
	ack, err := Publish(ctx, js, msg)
	if err != nil && errors.Is(context.Cause(ctx), ErrDenied) {
		return nil, context.Cause(ctx)
	}
	if err != nil || !ack.Duplicate {
		return ack, err
	}
	switch there, err := known(ack.Sequence); {
	case there:
		return ack, nil
	case isAway(err), errors.Is(Uncertain(err), ErrUncertain):
		return nil, fmt.Errorf("%w: whether it is stored cannot be read: %w", ErrUncertain, err)
	}
	msg.Header.Del(natsjs.MsgIDHeader)
	if another != "" {
		msg.Header.Set(natsjs.MsgIDHeader, another)
	}
	if ack, err = Publish(ctx, js, msg); err == nil {
		ack.Duplicate = true // it may be stored twice
	}
	return ack, err
}

// Same reports whether a stored message is the published one: the same subject, id, bytes
// and headers.
func Same(have Message, msg *nats.Msg) bool {
	return have.Subject == msg.Subject && have.Header.Get(natsjs.MsgIDHeader) == msg.Header.Get(natsjs.MsgIDHeader) && bytes.Equal(have.Data, msg.Data) &&
		maps.EqualFunc(PlainHeader(have.Header), PlainHeader(msg.Header), slices.Equal)
}
