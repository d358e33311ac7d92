package workers

import (
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/mesh"
)

// Takers counts the workers of an entity that answer.
type Takers struct {
	Workers int
	Durable int // workers of those that take durable tasks
}

// Add counts one more worker.
func (t *Takers) Add(info micro.Info) {
	t.Workers++
	if TakesDurable(info) {
		t.Durable++
	}
}

// TakersOf counts the workers of each entity.
func TakersOf(found []mesh.Instance) map[string]*Takers {
	out := map[string]*Takers{}
	for _, i := range found {
		if out[i.Entity] == nil {
			out[i.Entity] = &Takers{}
		}
		out[i.Entity].Add(i.Info)
	}
	return out
}

// TakesDurable reports whether a worker takes durable tasks. A worker of a
// release before [mesh.MetaDurable] has an endpoint for them if it does.
func TakesDurable(info micro.Info) bool {
	if says, ok := info.Metadata[mesh.MetaDurable]; ok {
		return says == mesh.DurableOn
	}
	return slices.ContainsFunc(info.Endpoints, func(e micro.EndpointInfo) bool { return e.Name == "work" })
}

// Lacking says why durable tasks wait, as the text after "and"; "" if a worker
// takes them.
func (t *Takers) Lacking() string {
	switch {
	case t == nil || t.Workers == 0:
		return "no worker that answers"
	case t.Durable == 0 && t.Workers == 1:
		return "its only worker takes no durable tasks"
	case t.Durable == 0:
		return fmt.Sprintf("none of its %d workers takes durable tasks", t.Workers)
	}
	return ""
}
