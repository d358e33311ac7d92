package jetstream

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

// Seen remembers for a window of time which ids an entity has seen, for all its workers:
// of several that claim an id within the window, one gets it.
type Seen struct {
	js     natsjs.JetStream
	bucket string
	window time.Duration
}

// NewSeen returns the window over [BucketSeen] of m's mesh. An id is forgotten one window
// after it was first seen. The window is rounded up to seconds, and is at least one. It
// must not be longer than the bucket's maximum age (15 minutes, unless [Options.Limits]
// says otherwise): the bucket drops ids of that age. NewSeen does no I/O.
func NewSeen(js natsjs.JetStream, m subject.Map, window time.Duration) *Seen {
	name := BucketSeen + m.Suffix()
	return &Seen{
		js:     js,
		bucket: name,
		window: max((window + time.Second - 1).Truncate(time.Second), time.Second),
	}
}

// Claim records that by has seen an id for an entity, unless one is recorded already. It
// returns the one that is recorded: the caller's by if it was the first. The stream
// decides, by one atomic write; if another was first, Claim reads that claim. The key is
// below the entity, so that only its workers can claim its ids.
//
// After [ErrExists] the id is recorded, and the claim could not be read: by is the holder only
// if it claimed the id before. After any other error nothing is decided. After [ErrUncertain]
// the id may be recorded: claim it again with the same by to find out.
func (s *Seen) Claim(ctx context.Context, entity, id, by string) (holder string, err error) {
	token := subject.Escape(id)
	if id == "" || len(token) > subject.MaxID {
		return "", fmt.Errorf("remember id: it has %d bytes when escaped, must have 1 to %d", len(token), subject.MaxID)
	}
	stream, subj := "KV_"+s.bucket, "$KV."+s.bucket+"."+subject.Escape(entity)+"."+token
	for wait := 5 * time.Millisecond; wait < time.Second; wait *= 2 {
		_, err := s.js.PublishMsg(ctx, &nats.Msg{Subject: api.KeyPrefix(s.js) + subj, Data: []byte(by), Header: nats.Header{
			natsjs.ExpectedLastSubjSeqHeader: {"0"}, natsjs.ExpectedStreamHeader: {stream}, natsjs.MsgTTLHeader: {s.window.String()},
		}})
		if err == nil {
			return by, nil
		}
		if !api.IsWrongSequence(err) {
			return "", api.Uncertain(api.Explain(s.js.Conn(), err, "remember id %q", id))
		}
		msg, err := api.Newest(ctx, s.js, stream, subj)
		switch {
		case err == nil && !msg.Genuine():
			return "", nil // written by a user without the right to
		case err == nil:
			return string(msg.Data), nil
		}
		if !errors.Is(err, natsjs.ErrMsgNotFound) { // otherwise the claim has just expired, or a replica is behind
			return "", fmt.Errorf("%w: %w", api.Explain(s.js.Conn(), err, "look who has id %q", id), ErrExists)
		}
		if !pause.For(ctx, wait) {
			break
		}
	}
	return "", fmt.Errorf("look who has id %q: %w: a replica lags behind", id, ErrExists)
}

// Bound returns the bucket's maximum age, which limits the window.
func (s *Seen) Bound(ctx context.Context) (time.Duration, error) {
	info, err := api.InfoOf(ctx, s.js, "KV_"+s.bucket)
	return info.Config.MaxAge, err
}
