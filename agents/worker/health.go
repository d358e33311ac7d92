package worker

import (
	"encoding/json"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// Check is a condition for the worker to be ready.
type Check struct {
	Name   string         `json:"name"` // nats, or an entity
	OK     bool           `json:"ok"`
	Why    string         `json:"why,omitempty"` // the reason, if the check failed or is degraded
	Detail map[string]any `json:"detail,omitempty"`
}

// Health returns the checks of the connection and of each agent. The worker is
// ready if all are OK. It does no I/O.
func (w *Worker) Health() []Check {
	conn := w.conn.Load()
	if conn == nil {
		return []Check{{Name: "nats", Why: "not connected yet"}}
	}
	now := map[string]mesh.Served{}
	if node := w.node.Load(); node != nil {
		for _, s := range node.Serving() {
			now[s.Entity] = s
		}
	}
	out := []Check{CheckConn(conn)}
	for _, entity := range w.Entities() {
		s, there := now[entity]
		if !there {
			out = append(out, Check{Name: entity, Why: "not served yet"})
			continue
		}
		out = append(out, checkServed(s))
	}
	return out
}

// addHealth adds the program's view to an agent's health.
func (w *Worker) addHealth(a *agents.Agent) {
	if w.cfg.Health == nil {
		return
	}
	own := a.Health
	a.Health = func() mesh.Health {
		told := w.cfg.Health(a.Entity)
		if own == nil {
			return told
		}
		if h := own(); rank(h) >= rank(told) {
			return h
		}
		return told
	}
}

// rank orders healths from good to bad.
func rank(h mesh.Health) int {
	return slices.Index([]intents.Health{intents.Healthy, intents.Degraded, intents.Unhealthy}, intents.Health(h.Status))
}

// CheckConn checks a connection.
func CheckConn(conn *nats.Conn) Check {
	c := Check{Name: "nats", OK: conn.IsConnected()}
	if !c.OK {
		c.Why = "the connection is " + conn.Status().String()
	}
	return c
}

func checkServed(s mesh.Served) Check {
	c := Check{Name: s.Entity, OK: s.Health.Status != "unhealthy", Detail: map[string]any{"instance": s.Instance, "status": s.Health.Status}}
	c.Why, _ = s.Health.Details["reason"].(string)
	if lane := laneState(s.Health); lane != "" {
		c.Detail[detailDurable] = lane
		// A lane that an operator has paused is in the intended state.
		c.OK = c.OK && (lane == string(jetstream.LaneWorking) || lane == string(jetstream.LanePaused))
		if !c.OK && c.Why == "" {
			c.Why = "the durable lane is " + lane
		}
	}
	if s.Stopping {
		c.OK, c.Why = false, "shutting down"
	}
	return c
}

// detailDurable is the key of the durable lane in an agent's health.
const detailDurable = "durable"

// laneState returns the state of an agent's durable lane; "" if it has none.
func laneState(h mesh.Health) string {
	raw, err := json.Marshal(h.Details[detailDurable])
	if err != nil {
		return ""
	}
	var lane struct{ State string }
	if json.Unmarshal(raw, &lane) != nil {
		return ""
	}
	return lane.State
}
