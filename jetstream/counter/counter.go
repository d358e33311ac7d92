package counter

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Stream is the stream of a mesh's counters, without the suffix of the mesh.
const Stream = "AEE_COUNT"

// headerIncr makes a stream of counters add the value to the counter that the message's
// subject names (nats-server ADR-49).
const headerIncr = "Nats-Incr"

// Counters count for the whole mesh, in [Stream]. The server adds, so that a caller
// need not read first, and its answer has the total. A count costs one publish and its
// acknowledgement. A value may be used by many goroutines at once.
type Counters struct {
	js natsjs.JetStream
	m  subject.Map
}

// New returns the counters of m's mesh. It does no I/O.
func New(js natsjs.JetStream, m subject.Map) *Counters { return &Counters{js, m} }

// Add adds n, which may be negative, to a counter and returns the total, n included. The
// owner, a kind and ids name a counter, see [subject.Map.Count]. A counter starts at zero
// again when nothing was added for as long as the stream keeps messages. Add fails with
// jetstream.ErrUnavailable if the stream does not exist, and with jetstream.ErrUncertain if it is unknown
// whether n was added.
func (c *Counters) Add(ctx context.Context, n int64, owner, kind string, ids ...string) (int64, error) {
	subj, err := c.m.Count(owner, kind, ids...)
	if err != nil {
		return 0, fmt.Errorf("count: %w", err)
	}
	ctx, cancel := api.OneRequest(ctx)
	defer cancel()
	// The server does not accept expectation headers here, so the answer is checked
	// instead.
	msg := &nats.Msg{Subject: subj, Header: nats.Header{headerIncr: {strconv.FormatInt(n, 10)}}}
	nc := c.js.Conn()
	answer, err := nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return 0, api.Uncertain(api.Explain(nc, api.OfWrite(nc, subj, err), "count on %s", subj))
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
		return 0, api.Explain(nc, ack.Error, "count on %s", subj)
	}
	if want := Stream + c.m.Suffix(); ack.Stream != want {
		return 0, fmt.Errorf("count on %s: it is captured by the stream %s, not by %s", subj, ack.Stream, want)
	}
	total, err := strconv.ParseInt(ack.Total, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("count on %s: the total %q is no number", subj, ack.Total)
	}
	return total, nil
}
