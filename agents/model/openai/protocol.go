package openai

import (
	"encoding/json"

	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

// The parts of the chat completions protocol that this package uses (OpenAI API reference, "Create
// chat completion").

// params is the body of a request, without members of single providers.
type params struct {
	Model               string            `json:"model"`
	Messages            []json.RawMessage `json:"messages"`
	Tools               []tool            `json:"tools,omitempty"`
	ResponseFormat      *format           `json:"response_format,omitempty"`
	Temperature         *float64          `json:"temperature,omitempty"`
	TopP                *float64          `json:"top_p,omitempty"`
	FrequencyPenalty    *float64          `json:"frequency_penalty,omitempty"`
	PresencePenalty     *float64          `json:"presence_penalty,omitempty"`
	Stop                []string          `json:"stop,omitempty"`
	Seed                *int64            `json:"seed,omitempty"`
	MaxTokens           int64             `json:"max_tokens,omitempty"`
	MaxCompletionTokens int64             `json:"max_completion_tokens,omitempty"`
	Stream              bool              `json:"stream,omitempty"`
	StreamOptions       *usageAsked       `json:"stream_options,omitempty"`
}

type usageAsked struct {
	IncludeUsage bool `json:"include_usage"`
}

// message is a message of the conversation. Only a message of the assistant has calls, and may lack
// content. Only a message of a tool has the id of a call.
type message struct {
	Role       string     `json:"role"`
	Content    *string    `json:"content,omitempty"`
	ToolCalls  []sentCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type sentCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function sentFunction `json:"function"`
}

type sentFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

type format struct {
	Type       string        `json:"type"`
	JSONSchema *formatSchema `json:"json_schema,omitempty"`
}

type formatSchema struct {
	Name   string          `json:"name"`
	Strict bool            `json:"strict,omitempty"`
	Schema json.RawMessage `json:"schema"`
}

// completion is an answer that is one document, or a chunk of a stream.
type completion struct {
	Model   endpoint.Text   `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   json.RawMessage `json:"usage"`
}

type choice struct {
	Index        endpoint.Count  `json:"index"`
	Message      json.RawMessage `json:"message"` // in a document; a said
	Delta        json.RawMessage `json:"delta"`   // in a chunk; a said
	FinishReason endpoint.Text   `json:"finish_reason"`
}

// said is a turn of the model, or a piece of one.
type said struct {
	Content   json.RawMessage `json:"content"` // see text
	Refusal   endpoint.Text   `json:"refusal"`
	ToolCalls []struct {
		Index    *endpoint.Count `json:"index"` // some servers send none
		ID       endpoint.Text   `json:"id"`
		Function struct {
			Name      endpoint.Text `json:"name"`
			Arguments endpoint.Text `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// counts are the token counts of a request. Some servers report cached tokens under a name of their
// own.
type counts struct {
	Prompt     endpoint.Count `json:"prompt_tokens"`
	Completion endpoint.Count `json:"completion_tokens"`
	Total      endpoint.Count `json:"total_tokens"`
	Hit        endpoint.Count `json:"prompt_cache_hit_tokens"`
	Prompts    struct {
		Cached endpoint.Count `json:"cached_tokens"`
		Write  endpoint.Count `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	Completions struct {
		Reasoning endpoint.Count `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}
