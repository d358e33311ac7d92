package bedrock

import (
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/document"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/aeemesh/aeemesh/agents/model"
)

// ask is one Generate: what is asked, in as many requests as it takes, and the
// turn that comes of it.
type ask struct {
	req      *model.Request
	extended map[string]json.RawMessage
	refused  map[string]bool // what the model did not take
	dropped  []string        // of the last request
	turn     *turn
}

// What a model may refuse besides the parameters that have AAIF's names.
const (
	native    = "outputConfig"
	streaming = "streaming"
	system    = "system"
)

func newAsk(req *model.Request, onDelta func(model.Delta) error) (*ask, error) {
	a := &ask{req: req, refused: map[string]bool{}, turn: &turn{onDelta: onDelta}}
	if len(req.Params.Extended) > 0 {
		if err := json.Unmarshal(req.Params.Extended, &a.extended); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// verbatim is a document of the protocol that is written as it is; the SDK's
// own would put it through a map.
type verbatim struct {
	document.Interface
	text json.RawMessage
}

func (v verbatim) MarshalSmithyDocument() ([]byte, error) { return v.text, nil }

func raw(text json.RawMessage) document.Interface {
	return verbatim{document.NewLazyDocument(nil), text}
}

// input is the request, as Converse takes it.
func (a *ask) input() *bedrockruntime.ConverseInput {
	a.dropped = nil
	in := &bedrockruntime.ConverseInput{ModelId: aws.String(a.req.Model)}
	a.tools(in)
	a.params(in)
	if len(a.extended) > 0 {
		in.AdditionalModelRequestFields = raw(a.req.Params.Extended)
	}
	var instruction string
	switch f := a.req.Format; f.Type {
	case model.FormatJSON:
		instruction = onlyJSON
	case model.FormatJSONSchema:
		schema, ok := subset(f.Schema)
		if !ok || a.refused[native] {
			instruction = onlyJSON + " It must be valid against this JSON Schema:\n" + string(f.Schema)
			break
		}
		name := f.Name
		if !toolName.MatchString(name) {
			name = "output"
		}
		in.OutputConfig = &types.OutputConfig{TextFormat: &types.OutputFormat{
			Type:      types.OutputFormatTypeJsonSchema,
			Structure: &types.OutputFormatStructureMemberJsonSchema{Value: types.JsonSchemaDefinition{Name: aws.String(name), Schema: aws.String(string(schema))}},
		}}
	}
	a.conversation(in, instruction)
	return in
}

const onlyJSON = "Answer with one JSON value and nothing else: no words around it and no code fence."

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// streamInput is the same request for ConverseStream.
func streamInput(in *bedrockruntime.ConverseInput) *bedrockruntime.ConverseStreamInput {
	return &bedrockruntime.ConverseStreamInput{
		ModelId: in.ModelId, Messages: in.Messages, System: in.System, ToolConfig: in.ToolConfig, InferenceConfig: in.InferenceConfig,
		AdditionalModelRequestFields: in.AdditionalModelRequestFields, OutputConfig: in.OutputConfig,
	}
}

// tools are those of the request; where there are none, those that were called
// before, since the API wants to know them.
func (a *ask) tools(in *bedrockruntime.ConverseInput) {
	defs := a.req.Tools
	if len(defs) == 0 {
		known := map[string]bool{}
		for _, m := range a.req.Messages {
			for _, c := range m.ToolCalls {
				if !known[c.Name] {
					known[c.Name] = true
					defs = append(defs, model.ToolDef{Name: c.Name})
				}
			}
		}
	}
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

// params maps the standard parameters, and notes what the API does not take.
func (a *ask) params(in *bedrockruntime.ConverseInput) {
	p, budget := a.req.Params, a.budget()
	out := types.InferenceConfiguration{}
	if t := p.Temperature; t != nil && !a.extends("temperature") {
		switch {
		case a.refused["temperature"] || budget != nil && *t != 1:
			a.drop("temperature")
		case *t > 1:
			a.drop("temperature")
			out.Temperature = aws.Float32(1)
		default:
			out.Temperature = aws.Float32(float32(*t))
		}
	}
	if p.TopP != nil && !a.extends("top_p") {
		if a.refused["top_p"] || budget != nil && *p.TopP < 0.95 {
			a.drop("top_p")
		} else {
			out.TopP = aws.Float32(float32(*p.TopP))
		}
	}
	if len(p.Stop) > 0 && !a.extends("stop") {
		if a.refused["stop"] {
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

// budget is that of the thoughts, nil where the extended parameters switch none
// on.
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

// aliases are the names by which the models know the standard parameters.
var aliases = map[string][]string{
	"top_p":      {"top_p", "topP", "p"},
	"max_tokens": {"max_tokens", "maxTokens", "max_gen_len", "max_new_tokens", "maxTokenCount", "max_tokens_to_sample"},
	"stop":       {"stop", "stop_sequences", "stopSequences"},
}

// extends reports whether an extended parameter says what a standard one does.
func (a *ask) extends(name string) bool {
	for _, alias := range append(aliases[name], name) {
		if _, ok := a.extended[alias]; ok {
			return true
		}
	}
	return false
}

// conversation puts the messages into in. instruction ends the system prompt.
func (a *ask) conversation(in *bedrockruntime.ConverseInput, instruction string) {
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
	var prompts []string
	for _, m := range a.req.Messages {
		if m.Role == model.RoleSystem {
			prompts = append(prompts, m.Content)
		}
	}
	for _, s := range append(prompts, instruction) {
		switch {
		case blank(s):
		case a.refused[system]:
			add(user, text(s)...)
		default:
			in.System = append(in.System, &types.SystemContentBlockMemberText{Value: s})
		}
	}
	for _, m := range a.req.Messages {
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
