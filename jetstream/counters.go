package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// headerIncr asks a stream of counters to add to the one that is the message's
// subject (nats-server ADR-49).
const headerIncr = "Nats-Incr"

// Counters count for the whole mesh, in [StreamCount]: the server adds, so that
// nobody has to read first, and whoever adds learns the total. One publish and
// its acknowledgement is all that a count costs. A value may be used by many
// goroutines at once.
type Counters struct {
	js natsjs.JetStream
	m  subject.Map
}

// NewCounters returns the counters of m's mesh. It does no I/O.
func NewCounters(js natsjs.JetStream, m subject.Map) *Counters { return &Counters{js, m} }

// Add adds n, which may be negative, to a counter and returns its total, n
// included. A counter is named by its owner, a kind and ids, see
// [subject.Map.Count]; one that nobody has added to for as long as the stream keeps it
// begins at zero. It fails with
// [ErrUnavailable] where there is no such stream, and with [ErrUncertain] where
// nobody knows whether it was added.
func (c *Counters) Add(ctx context.Context, n int64, owner, kind string, ids ...string) (int64, error) {
	subj, err := c.m.Count(owner, kind, ids...)
	if err != nil {
		return 0, fmt.Errorf("count: %w", err)
	}
	ctx, cancel := oneRequest(ctx)
	defer cancel()
	// The server takes no expectations beside it, so the answer is looked at.
	msg := &nats.Msg{Subject: subj, Header: nats.Header{headerIncr: {strconv.FormatInt(n, 10)}}}
	nc := c.js.Conn()
	answer, err := nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return 0, uncertain(explain(nc, err, "count on %s", subj))
	}
	var ack struct {
		Stream string           `json:"stream"`
		Total  string           `json:"val"`
		Error  *natsjs.APIError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &ack); err != nil {
		return 0, fmt.Errorf("count on %s: %w", subj, err)
	}
	if ack.Error != nil {
		return 0, explain(nc, ack.Error, "count on %s", subj)
	}
	if want := StreamCount + c.m.Suffix(); ack.Stream != want {
		return 0, fmt.Errorf("count on %s: it is captured by the stream %s, not by %s", subj, ack.Stream, want)
	}
	total, err := strconv.ParseInt(ack.Total, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("count on %s: the total %q is no number", subj, ack.Total)
	}
	return total, nil
}
