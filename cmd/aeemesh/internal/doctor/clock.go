package doctor

import (
	"context"
	"fmt"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh"
)

// clocks reads the clock of the agent that a sender sends to, by asking for its
// health: the sender may ask no other agent.
func (d *doctor) clocks(ctx context.Context) {
	node, err := d.node()
	if err != nil {
		d.tell("agent", "fail", "", "%s", outcome.Text(err))
		return
	}
	since := denial.Now(d.conn)
	d.agent(ctx, node, d.entity)
	if err := workers.Refused(since, d.conn, d.entity); err != nil {
		d.tell("permissions", "fail", fmt.Sprintf("\"aeemesh auth perms %s --sender\" prints what a sender needs.", d.entity), "%s", outcome.Text(err))
	}
	d.tellClocks()
}

// clock compares this machine's clock with the server's, which is in a stream's
// info.
func (d *doctor) clock(ctx context.Context, js natsjs.JetStream) {
	if d.stream == "" {
		d.tell("clock", "warn", "", "the server's clock is read from one of the mesh's streams, and this user sees none")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, d.app.Conn.Wait())
	defer cancel()
	asked := time.Now()
	stream, err := js.Stream(ctx, d.stream)
	if err != nil {
		d.tell("clock", "warn", "", "the server's clock cannot be read: %s", outcome.Text(err))
		return
	}
	took := time.Since(asked)
	server := stream.CachedInfo().TimeStamp
	if server.IsZero() {
		d.tell("clock", "warn", "", "the server does not report its clock")
		return
	}
	d.skew("clock", "the server", server.Sub(asked.Add(took/2)), took)
}

// skew judges the difference between two clocks; it is known to within half of
// took.
func (d *doctor) skew(name, clock string, skew, took time.Duration) {
	found := fmt.Sprintf("that of %s differs by %v, give or take %v", clock, skew.Abs().Round(time.Millisecond), (took/2 + time.Millisecond).Round(time.Millisecond))
	switch {
	case skew.Abs() > mesh.DefaultSkew:
		d.tell(name, "fail", "Envelopes are refused as stale (E_STALE). Synchronise the clocks.", "%s", found)
	case skew.Abs() > mesh.DefaultSkew/5:
		d.tell(name, "warn", fmt.Sprintf("Beyond %v envelopes are refused as stale.", mesh.DefaultSkew), "%s", found)
	default:
		d.tell(name, "ok", "", "%s", found)
	}
}

// tellClocks reports all clocks that are right in one line.
func (d *doctor) tellClocks() {
	switch n := len(d.clocked); {
	case n == 1:
		d.tell("clock", "ok", "", "that of %s differs by %v", d.clocked[0], d.apart.Round(time.Millisecond))
	case n > 1:
		d.tell("clock", "ok", "", "those of %d agents differ by at most %v", n, d.apart.Round(time.Millisecond))
	}
}
