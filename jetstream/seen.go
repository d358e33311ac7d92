package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Seen remembers for a window of time which ids an entity has seen, for all its
// workers: of all who claim an id within the window, one has it.
type Seen struct {
	js     natsjs.JetStream
	bucket string
	window time.Duration
}

// NewSeen returns the window over [BucketSeen] of m's mesh. An id is forgotten
// a window after it was first seen; the window is rounded up to seconds, at
// least one, and must not be longer than the bucket's own age (15 minutes,
// unless [Options.Limits] says otherwise), which ends it. It does no I/O.
func NewSeen(js natsjs.JetStream, m subject.Map, window time.Duration) *Seen {
	name := BucketSeen + m.Suffix()
	return &Seen{
		js:     js,
		bucket: name,
		window: max((window + time.Second - 1).Truncate(time.Second), time.Second),
	}
}

// Claim records that an entity has seen an id, and by whom, unless that is recorded.
// It returns who has the id: the caller's by, where it is the first. The decision is
// the stream's: one atomic write, and a read where another was first. The key stands
// below the entity, so that nobody but its workers can spoil its ids.
//
// With an error nothing is decided. After [ErrUncertain] the id may be recorded;
// claiming it again under the same by tells.
func (s *Seen) Claim(ctx context.Context, entity, id, by string) (holder string, err error) {
	token := subject.Escape(id)
	if id == "" || len(token) > subject.MaxID {
		return "", fmt.Errorf("remember id: it has %d bytes when escaped, must have 1 to %d", len(token), subject.MaxID)
	}
	stream, subj := "KV_"+s.bucket, "$KV."+s.bucket+"."+subject.Escape(entity)+"."+token
	for range 3 {
		_, err := s.js.PublishMsg(ctx, &nats.Msg{Subject: kvPrefix(s.js) + subj, Data: []byte(by), Header: nats.Header{
			natsjs.ExpectedLastSubjSeqHeader: {"0"}, natsjs.ExpectedStreamHeader: {stream}, natsjs.MsgTTLHeader: {s.window.String()},
		}})
		if err == nil {
			return by, nil
		}
		if !isWrongSequence(err) {
			return "", uncertain(explain(s.js.Conn(), err, "remember id %q", id))
		}
		msg, err := newest(ctx, s.js, stream, subj)
		switch {
		case err == nil && !msg.genuine():
			return "", nil // by somebody who should not
		case err == nil:
			return string(msg.Data), nil
		}
		if !errors.Is(err, natsjs.ErrMsgNotFound) { // else its time has just ended, or a replica is behind
			return "", explain(s.js.Conn(), err, "look who has id %q", id)
		}
		if !pause(ctx, 5*time.Millisecond) {
			return "", ctx.Err()
		}
	}
	return "", fmt.Errorf("remember id %q: %w", id, ErrChanged)
}

// Bound is how long the bucket keeps ids at most: a longer window is cut short.
func (s *Seen) Bound(ctx context.Context) (time.Duration, error) {
	var info natsjs.StreamInfo
	if err := request(ctx, s.js, "STREAM.INFO.KV_"+s.bucket, nil, &info); err != nil {
		return 0, explain(s.js.Conn(), err, "look at %s", s.bucket)
	}
	return info.Config.MaxAge, nil
}

// kvPrefix is what nats.go puts before the subject of a bucket's key when the
// JetStream API has a prefix of its own, as in another domain.
func kvPrefix(js natsjs.JetStream) string {
	o := js.Options()
	switch {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "" && o.APIPrefix != natsjs.DefaultAPIPrefix:
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return ""
}
