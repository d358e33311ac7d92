package handoff

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// Adopt gives a document of another platform, which was no task of a mesh, what a
// run of entity's needs besides: a task, from whom it says.
//
// One that waits for a person's approval is refused (state.ErrInvalid): nobody can
// give it here, and the run must not go on without (AAIF, Agent State Document).
func Adopt(c *state.Checkpoint, entity, from string) error {
	if a := c.Doc.ApprovalRequest; a != nil || c.Doc.Status == aaif.RunAwaitingApproval {
		what := "a person's approval"
		if a != nil && a.TriggerDescription != "" {
			what += fmt.Sprintf(" (%.200q)", a.TriggerDescription)
		}
		return fmt.Errorf("%w: the run waits for %s, which nobody can give here", state.ErrInvalid, what)
	}
	text := ""
	for _, m := range c.Doc.Conversation {
		if m.Role == aaif.MessageUser {
			text = m.Content
		}
	}
	payload, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		return err
	}
	task := envelope.New(envelope.TypeTask, from, entity, "agent.ask", payload)
	task.Corr = cmp.Or(c.Doc.RunID, task.Corr)
	raw, err := task.AppendJSON(nil)
	if err != nil {
		return err
	}
	c.Mesh = state.Mesh{Format: state.Format, Entity: entity, TaskID: task.ID, Task: raw, Priority: string(envelope.PriorityNormal), Loop: c.Mesh.Loop, More: c.Mesh.More}
	return nil
}
