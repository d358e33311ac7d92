package google

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// The request's body, by the API's reference. Arguments, schemas and results are raw JSON, because
// a float64 would change large numbers.
type (
	wireRequest struct {
		SystemInstruction *wireContent  `json:"systemInstruction,omitempty"`
		Contents          []wireContent `json:"contents"`
		Tools             []wireTools   `json:"tools,omitempty"`
		GenerationConfig  *wireConfig   `json:"generationConfig,omitempty"`
	}
	wireContent struct {
		Role  string     `json:"role,omitempty"`
		Parts []wirePart `json:"parts"`
	}
	wirePart struct {
		Text             *string       `json:"text,omitempty"`
		FunctionCall     *wireCall     `json:"functionCall,omitempty"`
		FunctionResponse *wireResponse `json:"functionResponse,omitempty"`
		ThoughtSignature string        `json:"thoughtSignature,omitempty"`
	}
	wireCall struct {
		ID   string          `json:"id,omitempty"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	}
	wireResponse struct {
		ID       string          `json:"id,omitempty"`
		Name     string          `json:"name"`
		Response json.RawMessage `json:"response"`
	}
	wireTools struct {
		FunctionDeclarations []wireFunction `json:"functionDeclarations"`
	}
	wireFunction struct {
		Name                 string          `json:"name"`
		Description          string          `json:"description,omitempty"`
		ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema,omitempty"`
	}
	wireConfig struct {
		Temperature        *float64        `json:"temperature,omitempty"`
		TopP               *float64        `json:"topP,omitempty"`
		MaxOutputTokens    int             `json:"maxOutputTokens,omitempty"`
		StopSequences      []string        `json:"stopSequences,omitempty"`
		PresencePenalty    *float64        `json:"presencePenalty,omitempty"`
		FrequencyPenalty   *float64        `json:"frequencyPenalty,omitempty"`
		Seed               *int64          `json:"seed,omitempty"`
		ResponseMIMEType   string          `json:"responseMimeType,omitempty"`
		ResponseJSONSchema json.RawMessage `json:"responseJsonSchema,omitempty"`
	}
)

// body encodes a request, and returns the standard parameters that are left
// out.
func (m *Model) body(req *model.Request, without refusal) (body []byte, dropped []string, err error) {
	var w wireRequest
	c := conversation{model: req.Model, unsigned: without&signatures != 0, given: make(map[string]bool), names: make(map[string]string)}
	author := configOf(req.Params.Extended)
	w.GenerationConfig, dropped = config(req, without, author)
	messages := req.Messages
	if slices.Contains(dropped, "response_format") {
		messages = model.InWords(req.Format, messages)
	}
	w.SystemInstruction, w.Contents = c.contents(messages)
	if len(req.Tools) > 0 {
		var t wireTools
		for _, d := range req.Tools {
			t.FunctionDeclarations = append(t.FunctionDeclarations, wireFunction{d.Name, d.Description, d.Parameters})
		}
		w.Tools = []wireTools{t}
	}
	if body, err = json.Marshal(w); err != nil {
		return nil, nil, err
	}
	if len(req.Params.Extended) > 0 {
		body, err = mergeDeep(body, req.Params.Extended)
	}
	return body, dropped, err
}

// configOf returns the members of the author's own generationConfig.
func configOf(extended json.RawMessage) (c map[string]json.RawMessage) {
	var e struct {
		GenerationConfig map[string]json.RawMessage `json:"generationConfig"`
	}
	if len(extended) > 0 && json.Unmarshal(extended, &e) == nil {
		return e.GenerationConfig
	}
	return nil
}

func config(req *model.Request, without refusal, author map[string]json.RawMessage) (c *wireConfig, dropped []string) {
	in := req.Params
	c = &wireConfig{Temperature: in.Temperature, TopP: in.TopP, MaxOutputTokens: in.MaxTokens, StopSequences: in.Stop,
		PresencePenalty: in.PresencePenalty, FrequencyPenalty: in.FrequencyPenalty}
	drop := func(name, member string) {
		if _, said := author[member]; !said {
			dropped = append(dropped, name)
		}
	}
	if without&penalties != 0 {
		if c.PresencePenalty != nil {
			drop("presence_penalty", "presencePenalty")
		}
		if c.FrequencyPenalty != nil {
			drop("frequency_penalty", "frequencyPenalty")
		}
		c.PresencePenalty, c.FrequencyPenalty = nil, nil
	}
	if in.Seed != nil {
		if *in.Seed >= math.MinInt32 && *in.Seed <= math.MaxInt32 {
			c.Seed = in.Seed
		} else {
			drop("seed", "seed")
		}
	}
	if t := req.Format.Type; t == model.FormatJSON || t == model.FormatJSONSchema {
		switch {
		case without&jsonWithTools != 0:
			drop("response_format", "responseMimeType")
		default:
			c.ResponseMIMEType = "application/json"
			if t == model.FormatJSONSchema && without&jsonSchema == 0 {
				c.ResponseJSONSchema = req.Format.Schema
			} else if t == model.FormatJSONSchema {
				drop("response_format", "responseJsonSchema")
			}
		}
	}
	slices.Sort(dropped)
	if empty, err := json.Marshal(c); err == nil && string(empty) == "{}" {
		c = nil
	}
	return c, dropped
}

// mergeDeep sets the members of b in a, byte for byte; objects are merged
// recursively.
func mergeDeep(a, b json.RawMessage) (json.RawMessage, error) {
	var old, over map[string]json.RawMessage
	if err := json.Unmarshal(a, &old); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &over); err != nil {
		return nil, err
	}
	merged, err := model.Merge(a, b)
	if err != nil {
		return nil, err
	}
	for name, value := range over {
		if !isObject(value) || !isObject(old[name]) {
			continue
		}
		inner, err := mergeDeep(old[name], value)
		if err != nil {
			return nil, err
		}
		one := append(append(append(envelope.AppendString([]byte{'{'}, name), ':'), inner...), '}')
		if merged, err = model.Merge(merged, one); err != nil {
			return nil, err
		}
	}
	return merged, nil
}

func isObject(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && raw[0] == '{'
}

// conversation converts messages to contents.
type conversation struct {
	model    string
	unsigned bool              // leave out signatures, because another endpoint may have made them
	given    map[string]bool   // calls whose id comes from the API
	names    map[string]string // names of calls, by id
}

const (
	roleUser  = "user"
	roleModel = "model"
)

// contents returns the system messages as one content, and the other messages
// as turns; the results of the calls of one turn form one turn.
func (c *conversation) contents(messages []model.Message) (system *wireContent, out []wireContent) {
	var rules []wirePart
	for i := range messages {
		msg := &messages[i]
		switch msg.Role {
		case model.RoleSystem:
			rules = append(rules, text(msg.Content))
		case model.RoleUser:
			out = append(out, wireContent{roleUser, []wirePart{text(msg.Content)}})
		case model.RoleAssistant:
			if parts := c.assistant(msg); len(parts) > 0 {
				out = append(out, wireContent{roleModel, parts})
			}
		case model.RoleTool:
			part := wirePart{FunctionResponse: c.answer(msg)}
			if n := len(out); n > 0 && out[n-1].Parts[0].FunctionResponse != nil {
				out[n-1].Parts = append(out[n-1].Parts, part)
				continue
			}
			out = append(out, wireContent{roleUser, []wirePart{part}})
		}
	}
	if len(out) == 0 { // the API requires a user's turn
		return nil, []wireContent{{roleUser, rules}}
	}
	if len(rules) > 0 {
		system = &wireContent{Parts: rules}
	}
	return system, out
}

// text makes a part; the API refuses an empty one.
func text(s string) wirePart {
	s = cmp.Or(s, " ")
	return wirePart{Text: &s}
}

// note stores the data of a part that is neither its text nor its call. In Message.Provider it
// precedes that part.
type note struct {
	Signature []byte `json:"signature,omitempty"`
	ID        bool   `json:"id,omitempty"` // the call's id comes from the API
}

// Gemini 3 and later refuse a turn whose first call has no signature. For calls
// of other models the API has a placeholder (Gemini API, "Thought signatures").
var (
	signing   = pattern.Of(`gemini-([3-9]|[1-9][0-9])`)
	noThought = base64.StdEncoding.EncodeToString([]byte("skip_thought_signature_validator"))
)

func (c *conversation) assistant(msg *model.Message) (parts []wirePart) {
	var n note
	calls := 0
	for _, piece := range model.UnpackPieces(adapter, c.model, *msg) {
		switch {
		case piece.Raw != nil:
			if n = (note{}); json.Unmarshal(piece.Raw, &n) != nil || c.unsigned {
				n.Signature = nil
			}
			continue
		case piece.Call != nil:
			call := &wireCall{Name: piece.Call.Name, Args: model.ObjectOf(piece.Call.Arguments)}
			c.names[piece.Call.ID] = call.Name
			if n.ID {
				call.ID = piece.Call.ID
				c.given[call.ID] = true
			}
			part := wirePart{FunctionCall: call, ThoughtSignature: base64.StdEncoding.EncodeToString(n.Signature)}
			if calls == 0 && part.ThoughtSignature == "" && signing.RE().MatchString(c.model) {
				part.ThoughtSignature = noThought
			}
			calls++
			parts = append(parts, part)
		default:
			part := text(piece.Text)
			part.ThoughtSignature = base64.StdEncoding.EncodeToString(n.Signature)
			parts = append(parts, part)
		}
		n = note{}
	}
	return parts
}

// answer converts a tool's result or error; the API requires an object.
func (c *conversation) answer(msg *model.Message) *wireResponse {
	r := &wireResponse{Name: msg.ToolName}
	if r.Name == "" {
		r.Name = c.names[msg.ToolCallID]
	}
	if c.given[msg.ToolCallID] {
		r.ID = msg.ToolCallID
	}
	member := "output"
	if msg.IsError {
		member = "error"
	}
	value := json.RawMessage(msg.Content)
	if msg.IsError || !json.Valid(value) {
		quoted, err := json.Marshal(msg.Content)
		if err != nil {
			panic("google: marshal of a string failed: " + err.Error())
		}
		value = quoted
	}
	r.Response = append(append([]byte(`{"`+member+`":`), value...), '}')
	return r
}
