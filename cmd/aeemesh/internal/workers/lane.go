package workers

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// LaneDetail is the key of the durable lane in an agent's health.
const LaneDetail = "durable"

// Lane is the state of a worker's durable lane, as the worker publishes it.
type Lane struct {
	State   string `json:"state"`
	Reason  string `json:"reason"`
	Pending int    `json:"pending"` // tasks in the queue
	Unacked int    `json:"unacked"` // tasks that workers have claimed
	LagMS   int64  `json:"lag_ms"`  // the age of the oldest pending task
}

// LaneOf returns the durable lane in an agent's health, if it has one.
func LaneOf(h *intents.HealthResult) (lane Lane, ok bool) {
	if h == nil || h.Details[LaneDetail] == nil {
		return lane, false
	}
	raw, err := json.Marshal(h.Details[LaneDetail])
	if err == nil {
		err = json.Unmarshal(raw, &lane)
	}
	return lane, err == nil && lane.State != ""
}

func (l Lane) lag() time.Duration { return time.Duration(l.LagMS) * time.Millisecond }

// waits reports whether the worker waits for JetStream to have the streams.
func (l Lane) waits() bool { return l.State == string(mesh.LaneWaiting) }

// Brief is the state in a word or two: "working", "working, 3s behind".
func (l Lane) Brief() string {
	if l.waits() {
		return l.String()
	}
	if l.Pending == 0 {
		return l.State
	}
	return fmt.Sprintf("%s, %s behind", l.State, term.Span(l.lag()))
}

func (l Lane) String() string {
	if l.waits() {
		return l.State + ": " + l.Reason
	}
	s := fmt.Sprintf("%s, %d waiting, %d in work", l.State, l.Pending, l.Unacked)
	if l.Pending > 0 {
		s += ", the oldest for " + term.Span(l.lag())
	}
	if l.Reason != "" {
		s += ": " + l.Reason
	}
	return s
}
