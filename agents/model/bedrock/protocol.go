package bedrock

import (
	"encoding/json"

	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

// adapter names this package in model.Message.Provider; AAIF uses the same name for the provider.
const adapter = "bedrock"

// converse is the body of Converse and of ConverseStream.
type converse struct {
	System       []content     `json:"system,omitempty"`
	Messages     []message     `json:"messages"`
	Tools        *tools        `json:"toolConfig,omitempty"`
	Inference    *inference    `json:"inferenceConfig,omitempty"`
	OutputConfig *outputConfig `json:"outputConfig,omitempty"`
}

type inference struct {
	MaxTokens   int64    `json:"maxTokens,omitempty"`
	Temperature *float64 `json:"temperature,omitempty"`
	TopP        *float64 `json:"topP,omitempty"`
	Stop        []string `json:"stopSequences,omitempty"`
}

type tools struct {
	Tools []tool `json:"tools"`
}

type tool struct {
	Spec toolSpec `json:"toolSpec"`
}

type toolSpec struct {
	Name        string      `json:"name"`
	Description string      `json:"description,omitempty"`
	InputSchema inputSchema `json:"inputSchema"`
}

type inputSchema struct {
	JSON json.RawMessage `json:"json"`
}

type outputConfig struct {
	TextFormat textFormat `json:"textFormat"`
}

type textFormat struct {
	Type      string          `json:"type"`
	Structure outputStructure `json:"structure"`
}

type outputStructure struct {
	JSONSchema outputSchema `json:"jsonSchema"`
}

// outputSchema has its schema as a JSON string.
type outputSchema struct {
	Name   string `json:"name"`
	Schema string `json:"schema"`
}

const (
	user      = "user"
	assistant = "assistant"
)

type message struct {
	Role    string    `json:"role"`
	Content []content `json:"content"`
}

// content is a block of a message; exactly one member is set. Only answers have citations.
type content struct {
	Text       string      `json:"text,omitempty"`
	ToolUse    *toolUse    `json:"toolUse,omitempty"`
	ToolResult *toolResult `json:"toolResult,omitempty"`
	Reasoning  *reasoning  `json:"reasoningContent,omitempty"`
	Citations  *citations  `json:"citationsContent,omitempty"`
}

type toolUse struct {
	ID    string          `json:"toolUseId"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

type toolResult struct {
	ID      string    `json:"toolUseId"`
	Status  string    `json:"status,omitempty"`
	Content []content `json:"content"`
}

type reasoning struct {
	Text     *reasoningText `json:"reasoningText,omitempty"`
	Redacted []byte         `json:"redactedContent,omitempty"`
}

type reasoningText struct {
	Text      string `json:"text"`
	Signature string `json:"signature,omitempty"`
}

type citations struct {
	Content []content `json:"content"`
}

// answer is what Converse returns.
type answer struct {
	Output struct {
		Message *message `json:"message"`
	} `json:"output"`
	StopReason string `json:"stopReason"`
	Usage      counts `json:"usage"`
}

type counts struct {
	Input   endpoint.Count `json:"inputTokens"`
	Output  endpoint.Count `json:"outputTokens"`
	Read    endpoint.Count `json:"cacheReadInputTokens"`
	Created endpoint.Count `json:"cacheWriteInputTokens"`
}

// event is an event of ConverseStream, with the members of all types.
type event struct {
	Index int64 `json:"contentBlockIndex"`
	Start struct {
		ToolUse *toolUse `json:"toolUse"`
	} `json:"start"`
	Delta struct {
		Text    string `json:"text"`
		ToolUse struct {
			Input string `json:"input"`
		} `json:"toolUse"`
		Reasoning *struct {
			Text      string `json:"text"`
			Signature string `json:"signature"`
			Redacted  []byte `json:"redactedContent"`
		} `json:"reasoningContent"`
	} `json:"delta"`
	StopReason string `json:"stopReason"`
	Usage      counts `json:"usage"`
}

// Reasons why a turn stopped.
const (
	stopTokens    = "max_tokens"
	stopWindow    = "model_context_window_exceeded"
	stopGuardrail = "guardrail_intervened"
	stopFiltered  = "content_filtered"
	stopRefusal   = "refusal"
	stopOutput    = "malformed_model_output"
	stopToolUse   = "malformed_tool_use"
)
