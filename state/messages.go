package state

import (
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
)

// Messages returns the conversation as messages of the model port: the specification's
// messages, completed from the notes.
func (c *Checkpoint) Messages() []model.Message {
	messages := make([]model.Message, len(c.Doc.Conversation))
	for i, m := range c.Doc.Conversation {
		messages[i] = model.Message{Role: model.Role(m.Role), Content: m.Content, ToolCallID: m.ToolCallID, ToolName: m.ToolName}
	}
	for _, n := range c.Mesh.Notes {
		if n.Message >= 0 && n.Message < len(messages) {
			m := &messages[n.Message]
			m.ToolCalls, m.IsError, m.Provider = n.Calls, n.IsError, n.Provider
		}
	}
	return messages
}

// Append adds a message to the conversation, with the time at which it was produced, and
// adds a note for what the specification's messages have no place for. tokens is its
// approximate length, 0 if unknown.
func (c *Checkpoint) Append(m model.Message, at time.Time, tokens int) {
	if len(m.ToolCalls) > 0 || m.IsError || m.Provider != nil {
		c.Mesh.Notes = append(c.Mesh.Notes, Note{Message: len(c.Doc.Conversation), Calls: m.ToolCalls, IsError: m.IsError, Provider: m.Provider})
	}
	out := aaif.Message{
		Role: aaif.MessageRole(m.Role), Content: m.Content, ToolCallID: m.ToolCallID, ToolName: m.ToolName, Timestamp: Time(at),
	}
	if tokens > 0 {
		out.TokenCount = aaif.Int(int64(tokens))
	}
	c.Doc.Conversation = append(c.Doc.Conversation, out)
}

// Truncate removes the messages from the n-th on from the conversation, and the notes
// about them.
func (c *Checkpoint) Truncate(n int) {
	c.Doc.Conversation = c.Doc.Conversation[:n:n]
	notes := c.Mesh.Notes
	for len(notes) > 0 && notes[len(notes)-1].Message >= n {
		notes = notes[:len(notes)-1]
	}
	c.Mesh.Notes = notes[:len(notes):len(notes)]
}
