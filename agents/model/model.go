package model

import (
	"context"
	"encoding/json"
)

// Model answers a conversation with its next turn.
//
// Implementers must:
//   - call [Request.Validate] first, and return its error as it is;
//   - return either a complete Response and nil, or nil and an error, never a
//     turn that was cut off: a stream that breaks is an [ErrUnavailable];
//   - stream when onDelta is not nil, so that the concatenated Delta.Text
//     equals Response.Message.Content; tool calls are never partial, they come
//     whole with the Response;
//   - call onDelta from one goroutine at a time and never after Generate has
//     returned; stop at its first error and return that error, wrapped at most;
//   - stop soon after ctx is done, with an error for which errors.Is(err,
//     ctx.Err()) holds;
//   - map failures to [*Error], without credentials in their text;
//   - give every tool call an ID that is unique in the Response;
//   - leave the Request unchanged, keep nothing of it, and be safe for
//     concurrent use.
//
// Implementations may retry before the first delta, within bounds that their
// configuration states; after it they must not, since text would double.
type Model interface {
	// Generate returns the assistant's next turn. A nil onDelta asks for no
	// streaming.
	Generate(ctx context.Context, req *Request, onDelta func(Delta) error) (*Response, error)
}

// Func is a Model made of one function, for wrappers and tests.
type Func func(ctx context.Context, req *Request, onDelta func(Delta) error) (*Response, error)

// Generate calls f.
func (f Func) Generate(ctx context.Context, req *Request, onDelta func(Delta) error) (*Response, error) {
	return f(ctx, req, onDelta)
}

// Request is what a model is asked.
type Request struct {
	// Model is the model's name in its provider's notation (AAIF
	// model.preferred).
	Model string

	// Messages is the conversation so far, oldest first. At least one.
	Messages []Message

	// Fit, if not nil, returns as much of Messages as belongs into a context
	// window of so many tokens, tools and answer allowed for. It is for a Model
	// that chooses among models of different windows; others ignore it. Fit(1) is
	// the least that can be sent. It changes nothing of the request, and is called
	// by one goroutine at a time, before Generate returns.
	Fit func(window int) []Message

	// Admit, if not nil, is asked before each call that may cost something, with
	// the price of what is about to be asked. Its error ends Generate as it is.
	// It is for a Model that knows prices; others ignore it, and their caller asks
	// it himself.
	Admit func(Price) error

	// Avoid are the routes, by the names that [Error].Route gave them, that broke
	// off this very turn: a Model that chooses among several takes them last.
	Avoid []string

	// Tools the model may call, each name once.
	Tools []ToolDef

	// Format of the answer. The zero value is text.
	Format Format

	// Params are the sampling parameters. The zero value leaves every one of
	// them to the provider.
	Params Params
}

// ToolDef tells a model about a tool.
type ToolDef struct {
	Name        string
	Description string

	// Parameters is the JSON Schema of the arguments, forwarded as it is.
	// Empty means that the tool takes no arguments.
	Parameters json.RawMessage
}

// Params are the sampling parameters of AAIF model.params and
// model.temperature. A nil pointer, a zero MaxTokens or an empty slice leaves
// the parameter to the provider.
type Params struct {
	Temperature      *float64 // 0 to 2
	MaxTokens        int      // of output, at most
	TopP             *float64 // 0 to 1
	FrequencyPenalty *float64 // -2 to 2
	PresencePenalty  *float64 // -2 to 2
	Stop             []string // at most 4
	Seed             *int64

	// Extended is a JSON object of provider-specific parameters. Adapters
	// forward its members verbatim and unvalidated (AAIF, "LLM Provider
	// Routing"); where a member and a field above say the same thing, the
	// member wins.
	Extended json.RawMessage
}

// FormatType is a kind of answer.
type FormatType string

// The formats that the port knows. AAIF's markdown is text to a model.
const (
	FormatText       FormatType = "text"        // anything; the zero Format
	FormatJSON       FormatType = "json"        // one JSON value
	FormatJSONSchema FormatType = "json_schema" // one JSON value that Format.Schema accepts
)

// Format asks for structured output. It is a request, not a guarantee: a
// provider may lack it, so a caller that needs valid JSON checks the answer.
type Format struct {
	Type   FormatType      // empty means FormatText
	Name   string          // of the schema, for FormatJSONSchema; empty means "output"
	Schema json.RawMessage // for FormatJSONSchema: a JSON Schema object
	Strict bool            // ask for strict adherence, which providers support for a subset of JSON Schema
}

// Delta is a piece of a streamed answer.
type Delta struct {
	// Text is to be appended to what came before. Never empty.
	Text string
}

// Response is one complete turn of the assistant.
type Response struct {
	// Message is the turn, ready to be appended to the conversation. Its role
	// is RoleAssistant.
	Message Message

	// Finish says why the turn ended.
	Finish Finish

	// Usage as the provider counted it; zero where the provider does not say.
	Usage Usage

	// Model is the name that the provider gives to what answered, or
	// Request.Model where it does not say.
	Model string

	// Dropped are the standard parameters of the request that this provider
	// does not take, or not with this model or these other parameters: they
	// were left out, or brought into its range. AAIF's names of model.params,
	// sorted. What Params.Extended overrides is not among them.
	Dropped []string `json:",omitempty"`

	// Provider is who answered, in the words of AAIF model.provider, or of
	// model.provider_id where that is custom. Adapters that serve one provider
	// set it; a router sets it where they do not.
	Provider string

	// Cost of this turn by the catalogue's price, if Priced. A router sets both:
	// adapters know no prices. A model that is free is priced, and costs 0.
	Cost   USD
	Priced bool

	// Tried are the routes that failed before this one answered, in order.
	Tried []Try
}

// Finish is the reason why a turn ended.
type Finish string

// The reasons. An adapter maps what it does not know to FinishStop, or to
// FinishToolCalls where the turn carries calls.
const (
	FinishStop          Finish = "stop"           // the model was done
	FinishToolCalls     Finish = "tool_calls"     // the model waits for tool results
	FinishLength        Finish = "length"         // cut at MaxTokens or at the context window
	FinishContentFilter Finish = "content_filter" // withheld by the provider, or refused by the model
)

// Usage counts tokens. Adapters bring what their providers count into this
// form.
type Usage struct {
	// InputTokens are all that the model read, from a cache or not.
	InputTokens int64 `json:"input_tokens"`

	// OutputTokens are all that it wrote, its thoughts included.
	OutputTokens int64 `json:"output_tokens"`

	// CachedInputTokens are those of InputTokens that the provider read from a
	// cache, which most sell cheaper.
	CachedInputTokens int64 `json:"cached_input_tokens,omitempty"`

	// CacheWriteTokens are those of InputTokens that the provider put into a
	// cache, which some sell dearer.
	CacheWriteTokens int64 `json:"cache_write_tokens,omitempty"`
}

// MaxTokens is the most that one call is believed to have used.
const MaxTokens = 1 << 40

// Believable is a provider's word about a call as far as it can be true: counts
// are neither negative, which would fill a budget up, nor beyond [MaxTokens], of
// which a few add up to more than JSON's numbers hold.
func (u Usage) Believable() Usage {
	for _, n := range []*int64{&u.InputTokens, &u.OutputTokens, &u.CachedInputTokens, &u.CacheWriteTokens} {
		*n = min(max(0, *n), MaxTokens)
	}
	return u
}

// Add returns the sum of u and v.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		InputTokens:       u.InputTokens + v.InputTokens,
		OutputTokens:      u.OutputTokens + v.OutputTokens,
		CachedInputTokens: u.CachedInputTokens + v.CachedInputTokens,
		CacheWriteTokens:  u.CacheWriteTokens + v.CacheWriteTokens,
	}
}
