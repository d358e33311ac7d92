package delegated

import (
	"encoding/json"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// A receiver that does not support delegation is called instead.

// Limits of the conversation that ForPerson adds to a person's task.
const (
	personMessages = 20
	personText     = 2 << 10 // bytes of each message
)

// ForPerson returns a payload with one more member, handed_over: the delegating agent,
// the reason, and the last messages of the conversation. A person cannot load the Agent
// State document.
func ForPerson(payload json.RawMessage, by, reason string, c *state.Checkpoint) json.RawMessage {
	type said struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	over := struct {
		By           string `json:"by"`
		Reason       string `json:"reason,omitempty"`
		Conversation []said `json:"conversation,omitempty"`
	}{By: by, Reason: clip.Text(reason, 128)}
	if c != nil {
		talk := c.Doc.Conversation
		for _, m := range talk[max(0, len(talk)-personMessages):] {
			over.Conversation = append(over.Conversation, said{string(m.Role), clip.Text(m.Content, personText)})
		}
	}
	members := map[string]json.RawMessage{}
	if json.Unmarshal(payload, &members) != nil {
		return payload
	}
	members["handed_over"] = wire.MustJSON(over)
	return wire.MustJSON(members)
}

// Relayed returns the members of requires that the receiver of a call gets: all except
// those that the mesh writes for each hop.
func Relayed(raw json.RawMessage) map[string]json.RawMessage {
	members := map[string]json.RawMessage{}
	if raw == nil || json.Unmarshal(raw, &members) != nil {
		return map[string]json.RawMessage{}
	}
	for _, name := range []string{requires.Handoff, requires.Context, requires.NotBefore, requires.Tree, requires.Mesh, requires.Lane, "timeout_ms", "stream"} {
		delete(members, name)
	}
	return members
}
