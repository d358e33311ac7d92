package bedrock

import (
	"encoding/json"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/aeemesh/aeemesh/agents/model"
)

// conversation puts messages into in.
func (a *ask) conversation(in *bedrockruntime.ConverseInput, messages []model.Message) {
	add := func(role types.ConversationRole, blocks ...types.ContentBlock) {
		if len(blocks) == 0 {
			return
		}
		if n := len(in.Messages); n > 0 && in.Messages[n-1].Role == role {
			in.Messages[n-1].Content = append(in.Messages[n-1].Content, blocks...)
			return
		}
		in.Messages = append(in.Messages, types.Message{Role: role, Content: blocks})
	}
	user, assistant := types.ConversationRoleUser, types.ConversationRoleAssistant
	for _, m := range messages {
		switch {
		case m.Role != model.RoleSystem || blank(m.Content):
		case a.refused[system] != 0:
			add(user, text(m.Content)...)
		default:
			in.System = append(in.System, &types.SystemContentBlockMemberText{Value: m.Content})
		}
	}
	for _, m := range messages {
		switch m.Role {
		case model.RoleUser:
			add(user, text(m.Content)...)
		case model.RoleTool:
			add(user, result(m))
		case model.RoleAssistant:
			if len(in.Messages) == 0 {
				add(user, text(goOn)...)
			}
			add(assistant, a.assistant(m)...)
		}
	}
	if n := len(in.Messages); n == 0 || in.Messages[n-1].Role == assistant {
		add(user, text(goOn)...)
	}
}

// goOn is what the user says where the API needs a message of the user's.
const goOn = "Continue."

func blank(s string) bool { return strings.TrimSpace(s) == "" }

func text(s string) []types.ContentBlock {
	if blank(s) {
		return nil
	}
	return []types.ContentBlock{&types.ContentBlockMemberText{Value: s}}
}

func result(m model.Message) types.ContentBlock {
	said := m.Content
	if blank(said) { // a result must have content
		said = "(nothing)"
	}
	r := types.ToolResultBlock{
		ToolUseId: aws.String(model.PlainID(m.ToolCallID)),
		Content:   []types.ToolResultContentBlock{&types.ToolResultContentBlockMemberText{Value: said}},
	}
	if m.IsError {
		r.Status = types.ToolResultStatusError
	}
	return &types.ContentBlockMemberToolResult{Value: r}
}

// assistant is a turn of the assistant's: with its thoughts, in their order,
// where they are at hand and were the same model's.
func (a *ask) assistant(m model.Message) (blocks []types.ContentBlock) {
	for _, p := range model.UnpackPieces(adapter, a.req.Model, m) {
		switch {
		case p.Raw != nil:
			if b := recall(p.Raw); b != nil {
				blocks = append(blocks, b)
			}
		case p.Call != nil:
			blocks = append(blocks, &types.ContentBlockMemberToolUse{Value: types.ToolUseBlock{
				ToolUseId: aws.String(model.PlainID(p.Call.ID)), Name: aws.String(p.Call.Name), Input: raw(model.ObjectOf(p.Call.Arguments))}})
		default:
			blocks = append(blocks, text(p.Text)...)
		}
	}
	return blocks
}

// adapter is this package's name in model.Message.Provider, and its provider's
// in AAIF.
const adapter = "bedrock"

// thought is a block of reasoning as it is kept in a conversation.
type thought struct {
	Text      *string `json:"text,omitempty"`
	Signature *string `json:"signature,omitempty"`
	Redacted  []byte  `json:"redacted,omitempty"`
}

func recall(kept json.RawMessage) types.ContentBlock {
	var t thought
	switch {
	case json.Unmarshal(kept, &t) != nil:
		return nil
	case t.Redacted != nil:
		return &types.ContentBlockMemberReasoningContent{Value: &types.ReasoningContentBlockMemberRedactedContent{Value: t.Redacted}}
	case t.Text != nil:
		return &types.ContentBlockMemberReasoningContent{Value: &types.ReasoningContentBlockMemberReasoningText{
			Value: types.ReasoningTextBlock{Text: t.Text, Signature: t.Signature}}}
	}
	return nil
}
