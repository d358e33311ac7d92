package jetstream

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/mesh/subject"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Seen remembers ids for a window of time, for all nodes of the mesh: of all
// that ask about an id within the window, one hears that it is the first.
type Seen struct {
	js     natsjs.JetStream
	pre    string // subject before the escaped id
	stream string
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
		pre:    kvPrefix(js) + "$KV." + name + ".",
		stream: "KV_" + name,
		window: max((window + time.Second - 1).Truncate(time.Second), time.Second),
	}
}

// FirstSeen records id and reports whether it was not recorded before. The
// decision is the stream's: one atomic write, no read.
//
// With an error nothing is decided. After [ErrUncertain] the id may be
// recorded, by this very call: asking again could answer false although nobody
// acted on it. A caller that must not act twice refuses; one that must not lose
// anything goes on.
func (s *Seen) FirstSeen(ctx context.Context, id string) (bool, error) {
	token := subject.Escape(id)
	if id == "" || len(token) > subject.MaxID {
		return false, fmt.Errorf("remember id: it has %d bytes when escaped, must have 1 to %d", len(token), subject.MaxID)
	}
	_, err := s.js.Publish(ctx, s.pre+token, nil,
		natsjs.WithExpectLastSequencePerSubject(0), natsjs.WithExpectStream(s.stream), natsjs.WithMsgTTL(s.window))
	if isWrongSequence(err) {
		return false, nil
	}
	if err != nil {
		return false, uncertain(explain(s.js.Conn(), err, "remember id %q", id))
	}
	return true, nil
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
