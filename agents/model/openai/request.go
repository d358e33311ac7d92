package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/aeemesh/aeemesh/agents/model"
)

// body is the JSON of a chat completions request.
func (m *Model) body(req *model.Request, stream bool) ([]byte, error) {
	p := openai.ChatCompletionNewParams{Model: req.Model}
	for _, msg := range req.Messages {
		p.Messages = append(p.Messages, message(msg))
	}
	for _, t := range req.Tools {
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(function(t)))
	}
	p.ResponseFormat = format(req.Format)
	m.params(&p, req.Params)
	if stream {
		p.StreamOptions.IncludeUsage = openai.Bool(true)
	}
	body, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	if stream {
		if body, err = merge(body, []byte(`{"stream":true}`)); err != nil {
			return nil, err
		}
	}
	if len(req.Params.Extended) == 0 {
		return body, nil
	}
	return merge(body, req.Params.Extended)
}

func (m *Model) params(p *openai.ChatCompletionNewParams, in model.Params) {
	number := func(v *float64) (o param.Opt[float64]) {
		if v != nil {
			o = openai.Float(*v)
		}
		return o
	}
	p.Temperature = number(in.Temperature)
	p.TopP = number(in.TopP)
	p.FrequencyPenalty = number(in.FrequencyPenalty)
	p.PresencePenalty = number(in.PresencePenalty)
	if in.Seed != nil {
		p.Seed = openai.Int(*in.Seed)
	}
	if len(in.Stop) > 0 {
		p.Stop.OfStringArray = append([]string(nil), in.Stop...)
	}
	switch {
	case in.MaxTokens == 0:
	case m.host == "api.openai.com":
		p.MaxCompletionTokens = openai.Int(int64(in.MaxTokens))
	default:
		p.MaxTokens = openai.Int(int64(in.MaxTokens))
	}
}

func message(m model.Message) openai.ChatCompletionMessageParamUnion {
	switch m.Role {
	case model.RoleSystem:
		return openai.SystemMessage(m.Content)
	case model.RoleUser:
		return openai.UserMessage(m.Content)
	case model.RoleTool:
		return openai.ToolMessage(m.Content, m.ToolCallID)
	}
	var a openai.ChatCompletionAssistantMessageParam
	if m.Content != "" || len(m.ToolCalls) == 0 {
		a.Content.OfString = openai.String(m.Content)
	}
	for _, c := range m.ToolCalls {
		a.ToolCalls = append(a.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{
			OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
				ID: c.ID,
				Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{
					Name:      c.Name,
					Arguments: string(c.Arguments),
				},
			},
		})
	}
	return openai.ChatCompletionMessageParamUnion{OfAssistant: &a}
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

func format(f model.Format) (u openai.ChatCompletionNewParamsResponseFormatUnion) {
	switch f.Type {
	case model.FormatJSON:
		u.OfJSONObject = &shared.ResponseFormatJSONObjectParam{}
	case model.FormatJSONSchema:
		s := shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: f.Name, Schema: f.Schema}
		if s.Name == "" {
			s.Name = "output"
		}
		if f.Strict {
			s.Strict = openai.Bool(true)
		}
		u.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: s}
	}
	return u
}

// merge sets the members of the object b in the object a, byte for byte.
func merge(a, b []byte) ([]byte, error) {
	var order []string
	values := make(map[string]json.RawMessage)
	for _, object := range [][]byte{a, b} {
		dec := json.NewDecoder(bytes.NewReader(object))
		if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
			return nil, fmt.Errorf("not a JSON object")
		}
		for dec.More() {
			tok, err := dec.Token()
			if err != nil {
				return nil, err
			}
			name, ok := tok.(string)
			if !ok {
				return nil, fmt.Errorf("not a member name: %v", tok)
			}
			var value json.RawMessage
			if err := dec.Decode(&value); err != nil {
				return nil, err
			}
			if _, known := values[name]; !known {
				order = append(order, name)
			}
			values[name] = value
		}
		if _, err := dec.Token(); err != nil {
			return nil, err
		}
		if _, err := dec.Token(); err != io.EOF {
			return nil, fmt.Errorf("more than one JSON value")
		}
	}
	out := []byte{'{'}
	for i, name := range order {
		if i > 0 {
			out = append(out, ',')
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		out = append(out, quoted...)
		out = append(out, ':')
		out = append(out, values[name]...)
	}
	return append(out, '}'), nil
}
