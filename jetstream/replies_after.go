package jetstream

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
)

// PublishAfter is like [Replies.Publish], but stores the reply only if the last message
// on the subject is the one with the sequence last, or if there is none and last is 0. Of
// several callers that try this, one succeeds; the others get [ErrExists].
func (r *Replies) PublishAfter(ctx context.Context, reply Reply, last uint64) (uint64, error) {
	msg, err := r.message(reply)
	if err != nil {
		return 0, err
	}
	seq, _, err := r.publishAfter(ctx, msg, reply.MsgID, last)
	return seq, err
}

// publishAfter is [Replies.PublishAfter] of a message. taken reports that a message on the subject
// has the id.
func (r *Replies) publishAfter(ctx context.Context, msg *nats.Msg, id string, last uint64) (seq uint64, taken bool, err error) {
	msg.Header[natsjs.MsgIDHeader] = []string{id}
	msg.Header[natsjs.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(last, 10)}
	ack, err := api.PublishOnce(ctx, r.js, msg, id+"."+nuid.Next(), func(seq uint64) (there bool, err error) {
		there, err = r.has(ctx, msg, seq)
		taken = there
		return there, err
	})
	switch {
	case taken, api.HasCode(err, natsjs.JSErrCodeStreamWrongLastSequence):
		return 0, taken, fmt.Errorf("publish a reply to %s: %w", msg.Subject, ErrExists)
	case err != nil:
		return 0, false, api.Uncertain(api.Explain(r.js.Conn(), err, "publish a reply to %s", msg.Subject))
	}
	return ack.Sequence, false, nil
}
