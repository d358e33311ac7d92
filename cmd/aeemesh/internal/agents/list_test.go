package agents

import (
	"testing"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
)

// The column of durable tasks is filled where the metadata of the workers tell, also
// where their health does not: they may refuse to be asked, or be of another language.
func TestLaneOfAgentsThatDoNotTell(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		instances, takers int
		lane              workers.Lane
		ok                bool
		want              string
	}{
		{2, 0, workers.Lane{}, false, "off"},
		{2, 1, workers.Lane{State: "working"}, true, "1 of 2 workers"},
		{2, 2, workers.Lane{State: "working"}, true, "working"},
		{2, 2, workers.Lane{}, false, "on"},
		{0, 0, workers.Lane{}, false, ""},
	} {
		l := summary{Instances: c.instances, Takers: c.takers}
		if l.lane(c.lane, c.ok); l.Durable != c.want {
			t.Errorf("%d of %d workers, told %v: %q, want %q", c.takers, c.instances, c.ok, l.Durable, c.want)
		}
	}
}
