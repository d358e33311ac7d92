package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/aeemesh/aeemesh/envelope/pause"
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
	case taken, api.IsChanged(err):
		return 0, taken, fmt.Errorf("publish a reply to %s: %w", msg.Subject, ErrExists)
	case err != nil:
		return 0, false, api.Uncertain(api.Explain(r.js.Conn(), err, "publish a reply to %s", msg.Subject))
	}
	return ack.Sequence, false, nil
}

// PublishUnless is like [Replies.Publish], but stores nothing if answered returns true for the
// last reply on the subject. No other reply is stored between that look and this one. So of
// several workers that reply to one message, one stores its reply, however long after one another
// they do. The MsgID alone is no proof of that: the server forgets it after two minutes, and
// another message may have it. Among other messages that are stored all the time, the reply is
// stored at last as Publish does it. So is that of a user who may not read the last reply.
func (r *Replies) PublishUnless(ctx context.Context, reply Reply, answered func(Message) bool) error {
	msg, err := r.message(reply)
	if err != nil {
		return err
	}
	id, last := reply.MsgID, uint64(0)
	for range publishTries {
		_, taken, err := r.publishAfter(ctx, msg, id, last)
		underWay := api.IsUnderWay(err)
		if !errors.Is(err, ErrExists) && !underWay {
			return err
		}
		tried := last
		last, err = r.lastUnless(ctx, msg.Subject, answered)
		if api.Refused(err) {
			break
		}
		if err != nil || last == replied {
			return err
		}
		switch {
		case taken: // by a message that is no such reply
			id = reply.MsgID + "." + nuid.Next()
		case last == tried: // the replica that answered lags behind, or the other reply is not stored yet
			pause.For(ctx, publishPause)
		}
	}
	return r.Publish(ctx, reply)
}

// How often PublishUnless tries, and the pause before it reads the same again.
const (
	publishTries = 20
	publishPause = 20 * time.Millisecond
)

// replied is no sequence of a message.
const replied = ^uint64(0)

// lastUnless returns the sequence of the last message on a subject, 0 if there is none, or replied
// if answered returns true for the last one that a user published.
func (r *Replies) lastUnless(ctx context.Context, subj string, answered func(Message) bool) (uint64, error) {
	last, reply, err := api.LastAndPublished(ctx, r.js, r.name(), subj)
	switch {
	case err == nil && answered(reply):
		return replied, nil
	case err != nil && !errors.Is(err, natsjs.ErrMsgNotFound):
		return 0, api.Explain(r.js.Conn(), err, "find a reply on %s", subj)
	}
	return last, nil
}
