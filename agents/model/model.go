package model

import (
	"context"
	"encoding/json"
)

// Model answers a conversation with its next turn.
//
// Implementers must:
//   - call [Request.Validate] first, and return its error unchanged;
//   - return either a complete Response and nil, or nil and an error, never a
//     turn that was cut off: a stream that breaks is an [ErrUnavailable];
//   - stream when onDelta is not nil, so that the concatenated Delta.Text
//     equals Response.Message.Content; tool calls are never partial, but only
//     in the Response;
//   - call onDelta from one goroutine at a time and never after Generate has
//     returned; stop at its first error and return that error, wrapped at most;
//   - stop soon after ctx is done, with an error for which errors.Is(err,
//     ctx.Err()) holds;
//   - map failures to [*Error], without credentials in their text;
//   - give every tool call an ID that no other call of the Request or the
//     Response has;
//   - leave the Request unchanged, retain no part of it, and be safe for
//     concurrent use.
//
// Implementations may retry before the first delta, within the bounds of their configuration.
// After it they must not retry, because the text would be streamed twice.
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

// Request is a request for a turn of a model.
type Request struct {
	// Model is the model's name in its provider's notation (AAIF
	// model.preferred).
	Model string

	// Messages is the conversation so far, oldest first. At least one.
	Messages []Message

	// Fit, if not nil, returns as many of the Messages as fit a context window
	// of so many tokens, with room for tools and the answer. It is for a Model
	// that routes between models with different windows; others ignore it.
	// Fit(1) is the shortest possible conversation. It does not modify the
	// request, and is called from one goroutine at a time, before Generate
	// returns.
	Fit func(window int) []Message

	// Admit, if not nil, is called before each call that may cost something,
	// with the price of the route. Its error ends Generate and is returned
	// unchanged. It is for a Model that knows prices; others ignore it, and
	// their caller calls Admit itself.
	Admit func(Price) error

	// Avoid are the routes, by the names in [Error].Route, that broke off this turn. A Model that
	// routes tries them last.
	Avoid []string

	// Tools the model may call, each name once.
	Tools []ToolDef

	// Format of the answer. The zero value is text.
	Format Format

	// Params are the sampling parameters. The zero value leaves every one of
	// them to the provider.
	Params Params
}

// ToolDef describes a tool to a model.
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

	// Extended is a JSON object of provider-specific parameters. Adapters forward its members
	// verbatim and unvalidated (AAIF, "LLM Provider Routing"); if a member and a field above set
	// the same parameter, the member takes precedence.
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

// Format requests structured output. It does not guarantee it: a provider may not support it, so a
// caller that needs valid JSON must check the answer.
type Format struct {
	Type   FormatType      // empty means FormatText
	Name   string          // of the schema, for FormatJSONSchema; empty means "output"
	Schema json.RawMessage // for FormatJSONSchema: a JSON Schema object
	Strict bool            // ask for strict adherence, which providers support for a subset of JSON Schema
}

// Delta is a piece of a streamed answer.
type Delta struct {
	// Text is appended to the earlier deltas. It is never empty.
	Text string
}

// Response is one complete turn of the assistant.
type Response struct {
	// Message is the turn, ready to be appended to the conversation. Its role
	// is RoleAssistant.
	Message Message

	// Finish is why the turn ended.
	Finish Finish

	// Usage as the provider reports it; zero if it reports none.
	Usage Usage

	// Model is the provider's name of the model that answered, or Request.Model
	// if the provider does not say.
	Model string

	// Dropped are the standard parameters of the request that were left out, or
	// brought into the provider's range, because the provider does not accept
	// them, or not with this model or these other parameters. They have AAIF's
	// names of model.params, sorted. Parameters that Params.Extended overrides
	// are not listed.
	Dropped []string `json:",omitempty"`

	// Provider is the provider that answered, by its name in AAIF
	// model.provider, or in model.provider_id if that is custom. Adapters for
	// one provider set it; otherwise a router does.
	Provider string

	// Cost is the price of this turn by the catalogue, if Priced. A router sets
	// both, because adapters know no prices. A free model is priced, at 0.
	Cost   USD
	Priced bool

	// Tried are the routes that failed before this one answered, in order.
	Tried []Try
}

// Finish is the reason why a turn ended.
type Finish string

// The reasons. An adapter converts unknown reasons to FinishStop, or to
// FinishToolCalls if the turn has calls.
const (
	FinishStop          Finish = "stop"           // the model was done
	FinishToolCalls     Finish = "tool_calls"     // the model waits for tool results
	FinishLength        Finish = "length"         // cut at MaxTokens or at the context window
	FinishContentFilter Finish = "content_filter" // withheld by the provider, or refused by the model
)

// Usage counts tokens. Adapters convert their providers' counts to this form.
type Usage struct {
	// InputTokens are all tokens that the model read, cached or not.
	InputTokens int64 `json:"input_tokens"`

	// OutputTokens are all tokens that it generated, including thoughts.
	OutputTokens int64 `json:"output_tokens"`

	// CachedInputTokens is the part of InputTokens that the provider read from
	// a cache, usually at a lower price.
	CachedInputTokens int64 `json:"cached_input_tokens,omitempty"`

	// CacheWriteTokens is the part of InputTokens that the provider wrote to a
	// cache, sometimes at a higher price.
	CacheWriteTokens int64 `json:"cache_write_tokens,omitempty"`
}

// MaxTokens is the largest count of one call that is accepted as plausible.
const MaxTokens = 1 << 40

// Believable returns a provider's counts, limited to plausible values: not
// negative, which would increase a budget, and not above [MaxTokens], a few of
// which exceed what JSON's numbers can represent.
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
