package openai

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// wire is an encoded request.
type wire struct {
	body    []byte
	stream  bool
	schema  bool              // it requests JSON by a schema
	sent    map[string]string // the standard parameter that each member of the body stands for
	refused map[string]int64  // the model's refusals that were known when it was built
	dropped []string          // standard parameters that are left out or changed
}

// wire builds a request. It includes the standard parameters that the provider has and the model is
// not known to refuse; the extended parameters replace members of the same name.
func (m *Model) wire(req *model.Request, stream bool) (*wire, error) {
	b := builder{
		provider: &m.provider,
		wire:     &wire{stream: stream, sent: make(map[string]string), refused: m.refusals.Of(req.Model)},
	}
	if err := b.extended(req.Params.Extended); err != nil {
		return nil, err
	}
	p := params{Model: req.Model}
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
		p.Tools = append(p.Tools, tool{"function", function{t.Name, t.Description, t.Parameters}})
	}
	b.params(&p, req.Params)
	if b.wire.stream && !b.take(streaming, streaming) {
		b.wire.stream = b.author[streaming] != nil
	}
	if b.wire.stream && !m.provider.noStreamUsage && b.take(streamOptions, streamOptions) {
		p.StreamOptions = &usageAsked{IncludeUsage: true}
	}
	p.Stream = b.wire.stream
	body, err := envelope.EncodeJSON(p)
	if err != nil {
		return nil, err
	}
	for _, over := range []json.RawMessage{b.extra, req.Params.Extended} {
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

// builder decides which standard parameters a request has.
type builder struct {
	*wire
	provider *Provider
	author   map[string]json.RawMessage // the extended parameters
	extra    json.RawMessage            // an object with members that only this provider has
}

func (b *builder) extended(raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	return json.Unmarshal(raw, &b.author)
}

// take reports whether a standard parameter goes into the request as this member. It does not if
// the extended parameters have the member.
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
	if param != streamOptions && param != streaming { // these two are not parameters of a document
		b.dropped = append(b.dropped, param)
	}
}

// within limits a number to the provider's range, and records a change.
func (b *builder) within(name string, v, least, most float64) *float64 {
	if v < least || v > most {
		b.drop(name)
	}
	return new(min(max(v, least), most))
}

func (b *builder) params(p *params, in model.Params) {
	q := b.provider.quirks
	hottest := cmp.Or(q.maxTemperature, 2)
	penalties := q.penalties
	if penalties == [2]float64{} {
		penalties = [2]float64{-2, 2}
	}
	if in.Temperature != nil && b.take(temperature, temperature) {
		p.Temperature = b.within(temperature, *in.Temperature, 0, hottest)
	}
	if in.TopP != nil && b.take(topP, topP) {
		p.TopP = in.TopP
	}
	if in.FrequencyPenalty != nil && b.take(frequencyPenalty, frequencyPenalty) {
		p.FrequencyPenalty = b.within(frequencyPenalty, *in.FrequencyPenalty, penalties[0], penalties[1])
	}
	if in.PresencePenalty != nil && b.take(presencePenalty, presencePenalty) {
		p.PresencePenalty = b.within(presencePenalty, *in.PresencePenalty, penalties[0], penalties[1])
	}
	if len(in.Stop) > 0 && b.take(stop, stop) {
		p.Stop = in.Stop
	}
	if in.Seed != nil {
		b.seed(p, *in.Seed)
	}
	if in.MaxTokens > 0 {
		b.maxTokens(p, int64(in.MaxTokens))
	}
}

func (b *builder) seed(p *params, v int64) {
	name := cmp.Or(b.provider.seed, seed)
	switch {
	case !b.take(seed, name):
	case name == seed:
		p.Seed = &v
	default:
		b.extra = fmt.Appendf(nil, `{%q:%d}`, name, v)
	}
}

func (b *builder) maxTokens(p *params, n int64) {
	name := cmp.Or(b.provider.maxTokens, maxTokens)
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
		p.MaxCompletionTokens = n
	default:
		p.MaxTokens = n
	}
}

// format sets response_format. It returns false if the system prompt must ask for the format, too.
func (b *builder) format(p *params, req *model.Request) bool {
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
		b.wire.stream = false // the provider sends the answer as one document
	}
	if f.Type == model.FormatJSON || q.noSchema || b.refused[responseFormat] == withoutForm {
		p.ResponseFormat = &format{Type: "json_object"}
		if f.Type == model.FormatJSON {
			return true
		}
		b.drop(responseFormat)
		return false
	}
	s := formatSchema{Name: f.Name, Schema: f.Schema, Strict: f.Strict || q.strict && fitsStrict(f.Schema)}
	s.Name = cmp.Or(s.Name, "output")
	b.wire.schema = true
	p.ResponseFormat = &format{Type: "json_schema", JSONSchema: &s}
	return true
}

func (m *Model) message(msg *model.Message) (json.RawMessage, error) {
	out := message{Role: string(msg.Role), Content: &msg.Content}
	switch msg.Role {
	case model.RoleTool:
		out.ToolCallID = m.callID(msg.ToolCallID)
	case model.RoleAssistant:
		if msg.Content == "" && len(msg.ToolCalls) > 0 {
			out.Content = nil
		}
		for _, c := range msg.ToolCalls {
			out.ToolCalls = append(out.ToolCalls, sentCall{m.callID(c.ID), "function", sentFunction{c.Name, string(c.Arguments)}})
		}
	}
	plain, err := envelope.EncodeJSON(out)
	if err != nil {
		return nil, err
	}
	members := m.unpack(msg)
	if len(members) == 0 {
		return plain, nil
	}
	more, err := envelope.EncodeJSON(members)
	if err != nil {
		return nil, err
	}
	return model.Merge(plain, more)
}

var shortID = pattern.Of(`^[A-Za-z0-9]{9}$`)

// callID converts a call's id to the provider's form. The id may come from another provider.
func (m *Model) callID(id string) string {
	if !m.provider.shortIDs || shortID.RE().MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	text := new(big.Int).SetBytes(sum[:]).Text(62)
	for len(text) < 9 {
		text = "0" + text
	}
	return text[len(text)-9:]
}
