package anthropic

import (
	"encoding/json"

	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

// The parts of the Messages API that this package uses (Anthropic API reference, "Create a Message"
// and "Streaming messages").

// apiVersion is the value of the header anthropic-version.
const apiVersion = "2023-06-01"

// params is the body of a request.
type params struct {
	Model         string        `json:"model"`
	MaxTokens     int64         `json:"max_tokens"`
	System        []*textBlock  `json:"system,omitempty"`
	Messages      []message     `json:"messages"`
	Tools         []tool        `json:"tools,omitempty"`
	ToolChoice    *toolChoice   `json:"tool_choice,omitempty"`
	OutputConfig  *outputConfig `json:"output_config,omitempty"`
	Temperature   *float64      `json:"temperature,omitempty"`
	TopP          *float64      `json:"top_p,omitempty"`
	StopSequences []string      `json:"stop_sequences,omitempty"`
	Stream        bool          `json:"stream,omitempty"`
}

// message is a message of the conversation, by the user or by the assistant.
type message struct {
	Content []content `json:"content"`
	Role    string    `json:"role"`
}

// content is a block: a *textBlock, a *toolUse, a *toolResult, or the json.RawMessage of a block
// that the API sent.
type content any

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type toolUse struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

type toolResult struct {
	Type      string       `json:"type"`
	ToolUseID string       `json:"tool_use_id"`
	Content   []*textBlock `json:"content,omitempty"`
	IsError   bool         `json:"is_error,omitempty"`
}

type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
}

type toolChoice struct {
	Type string `json:"type"`
}

type outputConfig struct {
	Format outputFormat `json:"format"`
}

type outputFormat struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

func newText(text string) *textBlock { return &textBlock{"text", text} }

// The roles of messages.
const (
	user      = "user"
	assistant = "assistant"
)

// The stop reasons that this package distinguishes.
const (
	stopPause   = "pause_turn"
	stopTokens  = "max_tokens"
	stopWindow  = "model_context_window_exceeded"
	stopRefusal = "refusal"
)

// answer is a message of the provider: a whole one, or the beginning of a stream.
type answer struct {
	Role       endpoint.Text     `json:"role"`
	Model      endpoint.Text     `json:"model"`
	Content    []json.RawMessage `json:"content"`
	StopReason endpoint.Text     `json:"stop_reason"`
	Usage      counts            `json:"usage"`
}

// counts are the token counts of a request. The end of a stream repeats those of the input, or
// leaves them out.
type counts struct {
	Input   *endpoint.Count `json:"input_tokens"`
	Created endpoint.Count  `json:"cache_creation_input_tokens"`
	Read    endpoint.Count  `json:"cache_read_input_tokens"`
	Output  endpoint.Count  `json:"output_tokens"`
}

// event is an event of a stream, with the members of all types.
type event struct {
	Type         endpoint.Text   `json:"type"`
	Message      answer          `json:"message"`
	Index        endpoint.Count  `json:"index"`
	ContentBlock json.RawMessage `json:"content_block"`
	Usage        counts          `json:"usage"`
	Delta        struct {
		Type        endpoint.Text `json:"type"`
		Text        endpoint.Text `json:"text"`
		PartialJSON endpoint.Text `json:"partial_json"`
		Thinking    endpoint.Text `json:"thinking"`
		Signature   endpoint.Text `json:"signature"`
		StopReason  endpoint.Text `json:"stop_reason"`
	} `json:"delta"`
}
