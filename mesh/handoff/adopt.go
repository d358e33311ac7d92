package handoff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// Adopt makes a run of entity from another platform's document that did not begin as a task of a
// mesh: it adds a task with from as sender. The document has no member for the run's input. If the
// conversation begins with a JSON object, as for agents with an io.input_schema, that object is
// the task's payload; otherwise the user's last text is. The payload is not validated: the run has
// begun, and continues from its conversation.
//
// A run that waits for a person's approval is refused with state.ErrInvalid: the approval
// cannot be given here, and the run must not continue without it (AAIF, Agent State
// Document). So is a run without a conversation, which would start again without an input.
func Adopt(c *state.Checkpoint, entity, from string) error {
	if a := c.Doc.ApprovalRequest; a != nil || c.Doc.Status == aaif.RunAwaitingApproval {
		what := "a person's approval"
		if a != nil && a.TriggerDescription != "" {
			what += fmt.Sprintf(" (%.200q)", a.TriggerDescription)
		}
		return fmt.Errorf("%w: the run waits for %s, which cannot be given here", state.ErrInvalid, what)
	}
	if len(c.Doc.Conversation) == 0 {
		return fmt.Errorf("%w: the document has no conversation, and nothing else in it says what the run was given", state.ErrInvalid)
	}
	task := envelope.New(envelope.TypeTask, from, entity, "agent.ask", nil)
	if c.Doc.RunID != "" {
		task.ID, task.Corr = state.AdoptedTask(entity, c.Doc.RunID), c.Doc.RunID
	}
	raw, err := withInput(task, c.Doc.Conversation)
	if err != nil {
		return err
	}
	c.Mesh = state.Mesh{Format: state.Format, Entity: entity, TaskID: task.ID, Task: raw, Priority: string(envelope.PriorityNormal), Loop: c.Mesh.Loop, More: c.Mesh.More}
	return nil
}

// withInput sets the task's payload from a conversation.
func withInput(task *envelope.Envelope, conversation []aaif.Message) ([]byte, error) {
	said := slices.DeleteFunc(slices.Clone(conversation), func(m aaif.Message) bool { return m.Role != aaif.MessageUser })
	last := ""
	if len(said) > 0 {
		var object bytes.Buffer
		if json.Compact(&object, []byte(said[0].Content)) == nil && object.Bytes()[0] == '{' {
			task.Payload = object.Bytes()
			raw, err := task.AppendJSON(nil)
			if err == nil {
				_, err = envelope.Parse(raw)
			}
			if err == nil {
				return raw, nil
			} // valid JSON, and no payload: a name twice, say, or too large
		}
		last = said[len(said)-1].Content
	}
	var err error
	if task.Payload, err = json.Marshal(map[string]string{"text": last}); err != nil {
		return nil, err
	}
	return task.AppendJSON(nil)
}
