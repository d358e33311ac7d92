package agents

import (
	"encoding/json"
	"slices"

	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
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
func toldStatus(found []mesh.Instance, entity string) (worst string) {
	ranks := []string{"healthy", "degraded", "unhealthy"}
	for _, i := range found {
		if i.Entity != entity {
			continue
		}
		var own struct {
			Status string `json:"status"`
		}
		if at := endpointOf(i, "task"); at == nil || json.Unmarshal(at.Data, &own) != nil || !slices.Contains(ranks, own.Status) {
			return ""
		}
		if slices.Index(ranks, own.Status) > slices.Index(ranks, worst) {
			worst = own.Status
		}
	}
	return worst
}

// laneStats returns the durable lane of the first worker of an entity whose
// stats have one.
func laneStats(found []mesh.Instance, entity string) (lane workers.Lane, ok bool) {
	for _, i := range found {
		if at := endpointOf(i, "work"); i.Entity == entity && at != nil && json.Unmarshal(at.Data, &lane) == nil && lane.State != "" {
			return lane, true
		}
	}
	return workers.Lane{}, false
}

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
