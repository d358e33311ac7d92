package mesh

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// A Wake says when a parked run goes on: at the first answer to one of its tasks, when
// the time for one of those answers is over, at At, and at the run's own deadline,
// which ends it. All times are by the server's clock.
type Wake struct {
	On []state.Wait
	At time.Time // zero: no set time
}

// maxWaits bounds the tasks whose answers one run may wait for.
const maxWaits = 1024

// waitsFor returns a short description of the entities that a run waits for.
func waitsFor(wake Wake) string {
	var who []string
	for _, w := range wake.On {
		if !slices.Contains(who, w.Entity) {
			who = append(who, w.Entity)
		}
	}
	switch {
	case len(who) == 0:
		return "for its time"
	case len(who) > 3:
		return fmt.Sprintf("for %s and %d others", clip.Text(who[0], 128), len(who)-1)
	}
	return "for " + clip.Text(strings.Join(who, ", "), 128)
}

// waitRequest returns the approval request of a waiting run: its pending action names
// the first of the tasks, in AAIF's fields, and lists all of them in the mesh's own.
func waitRequest(c *state.Checkpoint, wake Wake) *aaif.ApprovalRequest {
	req := &aaif.ApprovalRequest{TriggerDescription: "The run waits " + waitsFor(wake) + "."}
	end := run.Earliest(c, wake.At)
	if !end.IsZero() {
		req.TimeoutAt = state.Time(end)
	}
	type waiting struct {
		Entity string `json:"entity"`
		TaskID string `json:"task_id"`
		Key    string `json:"key,omitempty"`
		Until  string `json:"until,omitempty"`
	}
	action := struct {
		ToolName  string    `json:"tool_name"`
		Arguments waiting   `json:"arguments"`
		Waits     []waiting `json:"waits"`
	}{ToolName: "wait"}
	var hints []string
	for _, w := range wake.On {
		one := waiting{Entity: w.Entity, TaskID: w.TaskID, Key: w.Key}
		if !w.Until.IsZero() {
			one.Until = state.Time(w.Until)
		}
		action.Waits = append(action.Waits, one)
		if !w.Asked.IsZero() && (req.RequestedAt == "" || state.Time(w.Asked) < req.RequestedAt) {
			req.RequestedAt = state.Time(w.Asked)
		}
		if !slices.Contains(hints, w.Entity) {
			hints = append(hints, w.Entity)
		}
	}
	if req.RequestedAt == "" {
		req.RequestedAt = state.Time(time.Now())
	}
	req.ApproverHint = strings.Join(hints, ", ")
	if len(action.Waits) > 0 {
		action.ToolName, action.Arguments = "ask "+wake.On[0].Entity, action.Waits[0]
	}
	req.PendingAction = json.RawMessage(wire.MustJSON(action))
	return req
}
