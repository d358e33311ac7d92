package agents

import (
	"testing"

	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
	"github.com/aeemesh/aeemesh/mesh"
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

// One of several workers answers for the agent. Another one that cannot do its tasks, for instance
// because it is of an older release, is shown by its stats.
func TestAWorkerThatDoesNotAnswerIsShownByItsStats(t *testing.T) {
	t.Parallel()
	instance := func(status, lane string) mesh.Instance {
		return mesh.Instance{Entity: "agent.x", Stats: &micro.Stats{Endpoints: []*micro.EndpointStats{
			{Name: "task", Data: []byte(`{"status":"` + status + `"}`)}, {Name: "work", Data: []byte(`{"state":"` + lane + `"}`)},
		}}}
	}
	for _, c := range []struct {
		found                   []mesh.Instance
		status, reason, durable string
	}{
		{[]mesh.Instance{instance("healthy", "working"), instance("healthy", "working")}, "healthy", "", "working"},
		{[]mesh.Instance{instance("healthy", "working"), instance("degraded", "deaf")}, "degraded", "1 of 2 workers", "deaf"},
		{[]mesh.Instance{instance("degraded", "deaf")}, "healthy", "", "working"}, // it has answered since
	} {
		l := summary{Entity: "agent.x", Instances: len(c.found), Takers: len(c.found)}
		if l.answered("healthy", workers.Lane{State: "working"}, true, c.found); l.Status != c.status || l.Reason != c.reason || l.Durable != c.durable {
			t.Errorf("got %s (%s), %s, want %+v", l.Status, l.Reason, l.Durable, c)
		}
	}
}

// The stats of all workers are known, or the entity's status is not.
func TestTheWorstStatusIsTold(t *testing.T) {
	t.Parallel()
	instance := func(entity, status string) mesh.Instance {
		return mesh.Instance{Entity: entity, Stats: &micro.Stats{Endpoints: []*micro.EndpointStats{{Name: "task", Data: []byte(`{"status":"` + status + `"}`)}}}}
	}
	found := []mesh.Instance{instance("agent.x", "healthy"), instance("agent.y", "unhealthy"), instance("agent.x", "degraded"), instance("agent.x", "healthy")}
	if got := toldStatus(found, "agent.x"); got != "degraded" {
		t.Errorf("%q", got)
	}
	if got := toldStatus(append(found, mesh.Instance{Entity: "agent.x"}), "agent.x"); got != "" {
		t.Errorf("with a worker without stats: %q", got)
	}
	if got := toldStatus(append(found, mesh.Instance{Entity: "agent.y"}), "agent.x"); got != "degraded" {
		t.Errorf("with another entity's worker without stats: %q", got)
	}
}
