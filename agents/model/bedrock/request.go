package bedrock

import (
	"crypto/sha256"
	"encoding/json"
	"math"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/document"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// ask is one call of Generate: the request, which may be sent several times,
// and the resulting turn.
type ask struct {
	req      *model.Request
	extended map[string]json.RawMessage
	refusals *model.Refusals
	refused  map[string]int64 // parameters and features that the model is known to refuse
	dropped  []string         // of the last request
	turn     *turn
}

// Features that a model may refuse, beside the parameters with AAIF's names.
const (
	native    = "outputConfig " // structured output; the hash of a schema follows
	both      = "top_p beside temperature"
	streaming = "streaming"
	system    = "system"
)

// nativeSchema is the name under which a refusal of the request's schema is
// stored.
func (a *ask) nativeSchema() string {
	sum := sha256.Sum256(a.req.Format.Schema)
	return native + string(sum[:])
}

func newAsk(req *model.Request, refusals *model.Refusals, onDelta func(model.Delta) error) (*ask, error) {
	a := &ask{req: req, refusals: refusals, refused: refusals.Of(req.Model), turn: &turn{onDelta: onDelta}}
	if len(req.Params.Extended) > 0 {
		if err := json.Unmarshal(req.Params.Extended, &a.extended); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// verbatim is a document of the protocol that is written byte for byte; the
// SDK's own type would decode it to a map.
type verbatim struct {
	document.Interface
	text json.RawMessage
}

func (v verbatim) MarshalSmithyDocument() ([]byte, error) { return v.text, nil }

func raw(text json.RawMessage) document.Interface {
	return verbatim{document.NewLazyDocument(nil), text}
}

// input returns the request in the form of Converse.
func (a *ask) input() *bedrockruntime.ConverseInput {
	a.dropped = nil
	in := &bedrockruntime.ConverseInput{ModelId: aws.String(a.req.Model)}
	a.tools(in)
	a.params(in)
	if len(a.extended) > 0 {
		in.AdditionalModelRequestFields = raw(a.req.Params.Extended)
	}
	messages := a.req.Messages
	if schema := a.schema(); schema != nil {
		name := a.req.Format.Name
		if !plainName.RE().MatchString(name) {
			name = "output"
		}
		in.OutputConfig = &types.OutputConfig{TextFormat: &types.OutputFormat{
			Type:      types.OutputFormatTypeJsonSchema,
			Structure: &types.OutputFormatStructureMemberJsonSchema{Value: types.JsonSchemaDefinition{Name: aws.String(name), Schema: aws.String(string(schema))}},
		}}
	} else {
		messages = model.InWords(a.req.Format, messages)
	}
	a.conversation(in, messages)
	return in
}

var plainName = pattern.Of(`^[a-zA-Z0-9_-]{1,64}$`)

// schema returns the schema of structured output; nil if there is none, or if
// it must be described in the prompt.
func (a *ask) schema() json.RawMessage {
	if a.req.Format.Type != model.FormatJSONSchema || a.refused[a.nativeSchema()] != 0 {
		return nil
	}
	schema, _ := subset(a.req.Format.Schema)
	return schema
}

// streamInput is the same request for ConverseStream.
func streamInput(in *bedrockruntime.ConverseInput) *bedrockruntime.ConverseStreamInput {
	return &bedrockruntime.ConverseStreamInput{
		ModelId: in.ModelId, Messages: in.Messages, System: in.System, ToolConfig: in.ToolConfig, InferenceConfig: in.InferenceConfig,
		AdditionalModelRequestFields: in.AdditionalModelRequestFields, OutputConfig: in.OutputConfig,
	}
}

// tools sets the request's tools, or those that the conversation has called.
func (a *ask) tools(in *bedrockruntime.ConverseInput) {
	defs := model.CalledTools(a.req)
	if len(defs) == 0 {
		return
	}
	in.ToolConfig = &types.ToolConfiguration{}
	for _, d := range defs {
		schema := d.Parameters
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		spec := types.ToolSpecification{Name: aws.String(d.Name), InputSchema: &types.ToolInputSchemaMemberJson{Value: raw(schema)}}
		if d.Description != "" {
			spec.Description = aws.String(d.Description)
		}
		in.ToolConfig.Tools = append(in.ToolConfig.Tools, &types.ToolMemberToolSpec{Value: spec})
	}
}

// params converts the standard parameters, and records those that the API does
// not accept.
func (a *ask) params(in *bedrockruntime.ConverseInput) {
	p, budget := a.req.Params, a.budget()
	out := types.InferenceConfiguration{}
	if t := p.Temperature; t != nil && !a.extends("temperature") {
		switch {
		case a.refused["temperature"] != 0 || budget != nil && *t != 1:
			a.drop("temperature")
		case *t > 1:
			a.drop("temperature")
			out.Temperature = aws.Float32(1)
		default:
			out.Temperature = aws.Float32(float32(*t))
		}
	}
	if p.TopP != nil && !a.extends("top_p") {
		if a.refused["top_p"] != 0 || a.refused[both] != 0 && (out.Temperature != nil || a.extends("temperature")) || budget != nil && *p.TopP < 0.95 {
			a.drop("top_p")
		} else {
			out.TopP = aws.Float32(float32(*p.TopP))
		}
	}
	if len(p.Stop) > 0 && !a.extends("stop") {
		if a.refused["stop"] != 0 {
			a.drop("stop")
		} else {
			out.StopSequences = slices.Clone(p.Stop)
		}
	}
	switch {
	case a.extends("max_tokens"):
	case p.MaxTokens > 0:
		out.MaxTokens = aws.Int32(int32(min(p.MaxTokens, math.MaxInt32)))
	case budget != nil && *budget > 0: // an answer must be longer than its thoughts
		out.MaxTokens = aws.Int32(int32(min(*budget+8192, math.MaxInt32)))
	}
	for name, set := range map[string]bool{"seed": p.Seed != nil, "frequency_penalty": p.FrequencyPenalty != nil, "presence_penalty": p.PresencePenalty != nil} {
		if set && !a.extends(name) {
			a.drop(name)
		}
	}
	if out.Temperature != nil || out.TopP != nil || out.MaxTokens != nil || out.StopSequences != nil {
		in.InferenceConfig = &out
	}
}

// budget returns the token budget of thoughts; nil if the extended parameters
// do not enable them.
func (a *ask) budget() *int64 {
	for _, name := range []string{"thinking", "reasoning_config"} {
		var t struct {
			Type   string `json:"type"`
			Budget int64  `json:"budget_tokens"`
		}
		if json.Unmarshal(a.extended[name], &t) == nil && (t.Type == "enabled" || t.Type == "adaptive") {
			return &t.Budget
		}
	}
	return nil
}

func (a *ask) drop(name string) {
	if !slices.Contains(a.dropped, name) {
		a.dropped = append(a.dropped, name)
	}
}

// aliases are the models' own names of the standard parameters.
var aliases = map[string][]string{
	"top_p":      {"top_p", "topP", "p"},
	"max_tokens": {"max_tokens", "maxTokens", "max_gen_len", "max_new_tokens", "maxTokenCount", "max_tokens_to_sample"},
	"stop":       {"stop", "stop_sequences", "stopSequences"},
}

// extends reports whether an extended parameter sets the same as a standard
// one.
func (a *ask) extends(name string) bool {
	return slices.ContainsFunc(append(aliases[name], name), func(alias string) bool { _, ok := a.extended[alias]; return ok })
}
