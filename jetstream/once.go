package jetstream

import (
	"bytes"
	"context"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A stream knows a Nats-Msg-Id whatever the subject is, and says "duplicate" of every
// further message with it. Most ids here follow from what others are told: of the id of
// a task, of a run, of a sequence. So who may publish to one subject of a stream can
// publish with such an id first, and the message that it is meant for would be dropped,
// with an answer that sounds as if it were stored. Therefore "duplicate" counts where
// the message is found, and else it is published once more, under no such id: what reads
// it knows a message that came twice by other means (a run's record, an envelope's id).

// publishOnce publishes a message with a Nats-Msg-Id. If the server says that the id was
// there, known says whether the message is stored; if it is not, or nobody may look, it is
// published again with another id, "" for none.
func publishOnce(ctx context.Context, js natsjs.JetStream, msg *nats.Msg, another string, known func(seq uint64) bool) (*natsjs.PubAck, error) {
	ack, err := js.PublishMsg(ctx, msg)
	if err != nil || !ack.Duplicate || known(ack.Sequence) {
		return ack, err
	}
	msg.Header.Del(natsjs.MsgIDHeader)
	if another != "" {
		msg.Header.Set(natsjs.MsgIDHeader, another)
	}
	if ack, err = js.PublishMsg(ctx, msg); err == nil {
		ack.Duplicate = true // it may be there twice
	}
	return ack, err
}

// same reports whether a stored message is what was published: on this subject, with this
// id, these bytes and these headers.
func same(have Message, msg *nats.Msg) bool {
	return have.Subject == msg.Subject && have.Header.Get(natsjs.MsgIDHeader) == msg.Header.Get(natsjs.MsgIDHeader) && bytes.Equal(have.Data, msg.Data) &&
		maps.EqualFunc(plainHeader(have.Header), plainHeader(msg.Header), slices.Equal)
}
