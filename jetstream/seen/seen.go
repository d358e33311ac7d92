package seen

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Bucket is the bucket of a mesh's ids, without the suffix of the mesh.
const Bucket = "aee_seen"

// A Window remembers ids for a time: of several workers that claim an id within it, one
// gets it.
type Window struct {
	js     natsjs.JetStream
	bucket string
	length time.Duration
}

// New returns the window of m's mesh. An id is forgotten after length, counted from when it
// was first seen. The length is rounded up to seconds, and is at least one. It must not exceed
// the bucket's maximum age (15 minutes, unless jetstream.Options.Limits says otherwise): the
// bucket drops ids of that age. New does no I/O.
func New(js natsjs.JetStream, m subject.Map, length time.Duration) *Window {
	return &Window{
		js:     js,
		bucket: Bucket + m.Suffix(),
		length: max((length + time.Second - 1).Truncate(time.Second), time.Second),
	}
}

// Claim records that by has seen an id for an entity, unless one is recorded already. It
// returns the one that is recorded: the caller's by if it was the first. The stream
// decides, by one atomic write; if another was first, Claim reads that claim. The key is
// below the entity, so that only its workers can claim its ids.
//
// After jetstream.ErrExists the id is recorded, but its holder could not be read: it is by only if
// by has claimed the id before. After jetstream.ErrUncertain the id may be recorded: claim it
// again with the same by to find out. After any other error nothing is decided.
func (w *Window) Claim(ctx context.Context, entity, id, by string) (holder string, err error) {
	token := subject.Escape(id)
	if id == "" || len(token) > subject.MaxID {
		return "", fmt.Errorf("remember id: it has %d bytes when escaped, must have 1 to %d", len(token), subject.MaxID)
	}
	stream, subj := "KV_"+w.bucket, "$KV."+w.bucket+"."+subject.Escape(entity)+"."+token
	for wait := 5 * time.Millisecond; wait < time.Second; wait *= 2 {
		_, err := api.Publish(ctx, w.js, &nats.Msg{Subject: api.KeyPrefix(w.js) + subj, Data: []byte(by), Header: nats.Header{
			natsjs.ExpectedLastSubjSeqHeader: {"0"}, natsjs.ExpectedStreamHeader: {stream}, natsjs.MsgTTLHeader: {w.length.String()},
		}})
		if err == nil {
			return by, nil
		}
		if !api.IsWrongSequence(err) {
			return "", api.Uncertain(api.Explain(w.js.Conn(), err, "remember id %q", id))
		}
		msg, err := api.Newest(ctx, w.js, stream, subj)
		switch {
		case err == nil && !msg.Genuine():
			return "", nil // written by a user without the right to
		case err == nil:
			return string(msg.Data), nil
		}
		if !errors.Is(err, natsjs.ErrMsgNotFound) { // otherwise the claim has just expired, or a replica is behind
			return "", fmt.Errorf("%w: %w", api.Explain(w.js.Conn(), err, "look who has id %q", id), api.ErrExists)
		}
		if !pause.For(ctx, wait) {
			break
		}
	}
	return "", fmt.Errorf("look who has id %q: %w: a replica lags behind", id, api.ErrExists)
}

// Bound returns the maximum age of the bucket's records, which limits the length of windows, and how
// old the bucket is.
func (w *Window) Bound(ctx context.Context) (most, age time.Duration, err error) {
	info, err := api.InfoOf(ctx, w.js, "KV_"+w.bucket)
	return info.Config.MaxAge, info.TimeStamp.Sub(info.Created), err
}
