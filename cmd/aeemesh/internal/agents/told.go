package agents

import (
	"encoding/json"
	"slices"

	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// inquirer returns the node for asking an entity about its health. A key that
// was chosen automatically may not be known to the workers yet: they would
// refuse the signed request and raise an alert each time. So the request is
// unsigned if they accept that.
func inquirer(s *session.Session, found []mesh.Instance, entity string) *mesh.Node {
	if s.App.Sign.Kid != session.SignAuto || workers.WantSignatures(found, entity) {
		return s.Node
	}
	return s.UnsignedNode()
}

// toldStatus returns the worst status in the stats of an entity's workers; ""
// if one of them has none.
func toldStatus(found []mesh.Instance, entity string) string {
	if slices.ContainsFunc(found, func(i mesh.Instance) bool { return i.Entity == entity && statusOf(i) == "" }) {
		return ""
	}
	worst, _ := worse(found, entity, "")
	return worst
}

// ranks are the values of a status, the best first.
var ranks = []string{"healthy", "degraded", "unhealthy"}

// statusOf returns the status in a worker's stats, "" if they have none.
func statusOf(i mesh.Instance) string {
	var own struct {
		Status string `json:"status"`
	}
	if at := endpointOf(i, "task"); at == nil || json.Unmarshal(at.Data, &own) != nil || !slices.Contains(ranks, own.Status) {
		return ""
	}
	return own.Status
}

// worse returns the worst status in the stats of an entity's workers, and how many are worse than
// the one whose status is given. One of several workers answers a request for the health.
func worse(found []mesh.Instance, entity, than string) (worst string, n int) {
	worst = than
	for _, i := range found {
		status := statusOf(i)
		if i.Entity != entity || slices.Index(ranks, status) <= slices.Index(ranks, than) {
			continue
		}
		n++
		if slices.Index(ranks, status) > slices.Index(ranks, worst) {
			worst = status
		}
	}
	return worst, n
}

// laneStats returns the durable lane of the first worker of an entity whose stats have one that
// does not work, or else of the first that has one.
func laneStats(found []mesh.Instance, entity string) (lane workers.Lane, ok bool) {
	for _, i := range found {
		var own workers.Lane
		if at := endpointOf(i, "work"); i.Entity != entity || at == nil || json.Unmarshal(at.Data, &own) != nil || own.State == "" {
			continue
		}
		if !ok || lane.State == laneWorking && own.State != laneWorking {
			lane, ok = own, true
		}
	}
	return lane, ok
}

const laneWorking = string(jetstream.LaneWorking)

func endpointOf(i mesh.Instance, name string) *micro.EndpointStats {
	if i.Stats == nil {
		return nil
	}
	for _, e := range i.Stats.Endpoints {
		if e.Name == name {
			return e
		}
	}
	return nil
}
