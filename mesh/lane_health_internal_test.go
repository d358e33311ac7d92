package mesh

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/jetstream"
)

// The parts of a lane change one after the other. Its log says once what became of the whole lane.
func TestTheHealthOfALaneIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := &lane{holdings: &holdings{ctx: context.Background(), host: &host{log: slog.New(slog.NewTextHandler(&out, nil))}}}
	for _, h := range []jetstream.LaneHealth{
		{State: jetstream.LaneStarting}, {State: jetstream.LaneStarting}, {State: jetstream.LaneWorking},
		{State: jetstream.LaneDegraded, Reason: "high"}, {State: jetstream.LaneDegraded, Reason: "high"}, {State: jetstream.LaneDegraded, Reason: "urgent"},
		{State: jetstream.LaneWorking}, {State: jetstream.LaneWorking},
	} {
		l.onHealth(h)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		_, rest, _ := strings.Cut(line, "level=")
		got = append(got, strings.TrimSpace(rest))
	}
	want := `INFO msg="durable lane" state=starting
INFO msg="durable lane" state=working
WARN msg="durable lane" state=degraded reason=high
WARN msg="durable lane" state=degraded reason=urgent
WARN msg="durable lane" state=working`
	if strings.Join(got, "\n") != want {
		t.Errorf("got %s", strings.Join(got, "\n"))
	}
}
