package openai

import (
	"crypto/sha256"
	"encoding/json"
	"math/big"
	"regexp"
	"slices"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/aeemesh/aeemesh/agents/model"
)

// wire is a request as it is sent.
type wire struct {
	body    []byte
	stream  bool
	schema  bool              // it asks for JSON by a schema
	sent    map[string]string // members that stand for standard parameters, and which
	refused map[string]string // what was known of the model's refusals
	dropped []string          // standard parameters that are not sent as they were asked for
}

// wire builds a request: the standard parameters as the provider has them and
// the model is known to take them, and the extended ones over them.
func (m *Model) wire(req *model.Request, stream bool) (*wire, error) {
	b := builder{
		provider: &m.provider,
		wire:     &wire{stream: stream, sent: make(map[string]string), refused: m.refusals.get(req.Model)},
	}
	if err := b.extended(req.Params.Extended); err != nil {
		return nil, err
	}
	p := openai.ChatCompletionNewParams{Model: req.Model}
	messages := req.Messages
	if !b.format(&p, req) {
		messages = model.InWords(req.Format, messages)
	}
	for i := range messages {
		msg, err := m.message(&messages[i])
		if err != nil {
			return nil, err
		}
		p.Messages = append(p.Messages, msg)
	}
	for _, t := range req.Tools {
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(function(t)))
	}
	b.params(&p, req.Params)
	if b.wire.stream && !b.take(streaming, streaming) {
		b.wire.stream = b.author[streaming] != nil
	}
	if b.wire.stream && !m.provider.noStreamUsage && b.take(streamOptions, streamOptions) {
		p.StreamOptions.IncludeUsage = openai.Bool(true)
	}
	body, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	for _, over := range []json.RawMessage{b.renamed(), req.Params.Extended} {
		if len(over) == 0 {
			continue
		}
		if body, err = model.Merge(body, over); err != nil {
			return nil, err
		}
	}
	b.wire.body = body
	slices.Sort(b.wire.dropped)
	b.wire.dropped = slices.Compact(b.wire.dropped)
	return b.wire, nil
}

// builder decides about each standard parameter.
type builder struct {
	*wire
	provider *Provider
	author   map[string]json.RawMessage // the extended parameters
	extra    map[string]any             // members that the SDK has no place for
}

func (b *builder) extended(raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	return json.Unmarshal(raw, &b.author)
}

// take reports whether a standard parameter goes into the request, as member.
// It does not where the author has said the same by an extended one.
func (b *builder) take(param, member string) bool {
	if _, said := b.author[member]; said {
		return false
	}
	if slices.Contains(b.provider.lacks, param) || b.refused[param] == leaveOut {
		b.drop(param)
		return false
	}
	b.sent[member] = param
	return true
}

func (b *builder) drop(param string) {
	if param != streamOptions && param != streaming { // which are no parameters of the document
		b.dropped = append(b.dropped, param)
	}
}

// within brings a number into the provider's range, and notes it.
func (b *builder) within(name string, v, least, most float64) param.Opt[float64] {
	if v < least || v > most {
		b.drop(name)
	}
	return openai.Float(min(max(v, least), most))
}

func (b *builder) params(p *openai.ChatCompletionNewParams, in model.Params) {
	q := b.provider.quirks
	hottest := q.maxTemperature
	if hottest == 0 {
		hottest = 2
	}
	penalties := q.penalties
	if penalties == [2]float64{} {
		penalties = [2]float64{-2, 2}
	}
	if in.Temperature != nil && b.take(temperature, temperature) {
		p.Temperature = b.within(temperature, *in.Temperature, 0, hottest)
	}
	if in.TopP != nil && b.take(topP, topP) {
		p.TopP = openai.Float(*in.TopP)
	}
	if in.FrequencyPenalty != nil && b.take(frequencyPenalty, frequencyPenalty) {
		p.FrequencyPenalty = b.within(frequencyPenalty, *in.FrequencyPenalty, penalties[0], penalties[1])
	}
	if in.PresencePenalty != nil && b.take(presencePenalty, presencePenalty) {
		p.PresencePenalty = b.within(presencePenalty, *in.PresencePenalty, penalties[0], penalties[1])
	}
	if len(in.Stop) > 0 && b.take(stop, stop) {
		p.Stop.OfStringArray = slices.Clone(in.Stop)
	}
	if in.Seed != nil {
		b.seed(p, *in.Seed)
	}
	if in.MaxTokens > 0 {
		b.maxTokens(p, int64(in.MaxTokens))
	}
}

func (b *builder) seed(p *openai.ChatCompletionNewParams, v int64) {
	name := b.provider.seed
	if name == "" {
		name = seed
	}
	switch {
	case !b.take(seed, name):
	case name == seed:
		p.Seed = openai.Int(v)
	default:
		b.extra = map[string]any{name: v}
	}
}

func (b *builder) maxTokens(p *openai.ChatCompletionNewParams, n int64) {
	name := b.provider.maxTokens
	if name == "" {
		name = maxTokens
	}
	if b.refused[maxTokens] == otherName {
		name = map[string]string{maxTokens: maxCompletionTokens, maxCompletionTokens: maxTokens}[name]
	}
	for _, said := range []string{maxTokens, maxCompletionTokens} { // both at once would be refused
		if _, ok := b.author[said]; ok {
			return
		}
	}
	switch {
	case !b.take(maxTokens, name):
	case name == maxCompletionTokens:
		p.MaxCompletionTokens = openai.Int(n)
	default:
		p.MaxTokens = openai.Int(n)
	}
}

// format asks for the format natively, and reports whether that says it all.
func (b *builder) format(p *openai.ChatCompletionNewParams, req *model.Request) bool {
	f, q := req.Format, b.provider.quirks
	if f.Type == "" || f.Type == model.FormatText {
		return true
	}
	if q.formatAlone && len(req.Tools) > 0 && b.author[responseFormat] == nil {
		b.drop(responseFormat)
		return false
	}
	if !b.take(responseFormat, responseFormat) {
		return b.author[responseFormat] != nil
	}
	if q.formatWhole {
		b.wire.stream = false // the whole answer is told at once
	}
	if f.Type == model.FormatJSON || q.noSchema || b.refused[responseFormat] == withoutForm {
		p.ResponseFormat.OfJSONObject = &shared.ResponseFormatJSONObjectParam{}
		if f.Type == model.FormatJSON {
			return true
		}
		b.drop(responseFormat)
		return false
	}
	s := shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: f.Name, Schema: f.Schema}
	if s.Name == "" {
		s.Name = "output"
	}
	if f.Strict || q.strict && fitsStrict(f.Schema) {
		s.Strict = openai.Bool(true)
	}
	b.wire.schema = true
	p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: s}
	return true
}

// renamed are the members beside the SDK's.
func (b *builder) renamed() json.RawMessage {
	if b.wire.stream {
		if b.extra == nil {
			b.extra = make(map[string]any)
		}
		b.extra["stream"] = true
	}
	if len(b.extra) == 0 {
		return nil
	}
	raw, err := json.Marshal(b.extra)
	if err != nil {
		panic("openai: marshal of numbers failed: " + err.Error())
	}
	return raw
}

func (m *Model) message(msg *model.Message) (u openai.ChatCompletionMessageParamUnion, err error) {
	switch msg.Role {
	case model.RoleSystem:
		return openai.SystemMessage(msg.Content), nil
	case model.RoleUser:
		return openai.UserMessage(msg.Content), nil
	case model.RoleTool:
		return openai.ToolMessage(msg.Content, m.callID(msg.ToolCallID)), nil
	}
	var a openai.ChatCompletionAssistantMessageParam
	if msg.Content != "" || len(msg.ToolCalls) == 0 {
		a.Content.OfString = openai.String(msg.Content)
	}
	for _, c := range msg.ToolCalls {
		a.ToolCalls = append(a.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{
			OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
				ID: m.callID(c.ID),
				Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{
					Name:      c.Name,
					Arguments: string(c.Arguments),
				},
			},
		})
	}
	extra := m.unpack(msg)
	if len(extra) == 0 {
		return openai.ChatCompletionMessageParamUnion{OfAssistant: &a}, nil
	}
	plain, err := json.Marshal(a)
	if err != nil {
		return u, err
	}
	more, err := json.Marshal(extra)
	if err != nil {
		return u, err
	}
	whole, err := model.Merge(plain, more)
	if err != nil {
		return u, err
	}
	return param.Override[openai.ChatCompletionMessageParamUnion](json.RawMessage(whole)), nil
}

var shortID = regexp.MustCompile(`^[A-Za-z0-9]{9}$`)

// callID is a call's id in the provider's form. A conversation may have begun
// elsewhere.
func (m *Model) callID(id string) string {
	if !m.provider.shortIDs || shortID.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	text := new(big.Int).SetBytes(sum[:]).Text(62)
	for len(text) < 9 {
		text = "0" + text
	}
	return text[len(text)-9:]
}

// function passes the schema on as it is written; the SDK's own type would put
// it through a map.
func function(t model.ToolDef) shared.FunctionDefinitionParam {
	return param.Override[shared.FunctionDefinitionParam](struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	}{t.Name, t.Description, t.Parameters})
}
