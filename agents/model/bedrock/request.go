package bedrock

import (
	"crypto/sha256"
	"encoding/json"
	"math"
	"slices"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
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

// body returns the JSON of a request.
func (a *ask) body() ([]byte, error) {
	a.dropped = nil
	var in converse
	a.tools(&in)
	a.params(&in)
	messages := a.req.Messages
	if schema := a.schema(); schema != nil {
		name := a.req.Format.Name
		if !plainName.RE().MatchString(name) {
			name = "output"
		}
		in.OutputConfig = &outputConfig{textFormat{"json_schema", outputStructure{outputSchema{name, string(schema)}}}}
	} else {
		messages = model.InWords(a.req.Format, messages)
	}
	a.conversation(&in, messages)
	body, err := envelope.EncodeJSON(in)
	if err != nil || len(a.extended) == 0 {
		return body, err
	}
	return model.Merge(body, slices.Concat([]byte(`{"additionalModelRequestFields":`), a.req.Params.Extended, []byte(`}`)))
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

// tools sets the request's tools, or those that the conversation has called.
func (a *ask) tools(in *converse) {
	defs := model.CalledTools(a.req)
	if len(defs) == 0 {
		return
	}
	in.Tools = &tools{}
	for _, d := range defs {
		schema := d.Parameters
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		in.Tools.Tools = append(in.Tools.Tools, tool{toolSpec{d.Name, d.Description, inputSchema{schema}}})
	}
}

// params converts the standard parameters, and records those that the API does
// not accept.
func (a *ask) params(in *converse) {
	p, budget := a.req.Params, a.budget()
	out := inference{}
	if t := p.Temperature; t != nil && !a.extends("temperature") {
		switch {
		case a.refused["temperature"] != 0 || budget != nil && *t != 1:
			a.drop("temperature")
		case *t > 1:
			a.drop("temperature")
			out.Temperature = new(1.0)
		default:
			out.Temperature = t
		}
	}
	if p.TopP != nil && !a.extends("top_p") {
		if a.refused["top_p"] != 0 || a.refused[both] != 0 && (out.Temperature != nil || a.extends("temperature")) || budget != nil && *p.TopP < 0.95 {
			a.drop("top_p")
		} else {
			out.TopP = p.TopP
		}
	}
	if len(p.Stop) > 0 && !a.extends("stop") {
		if a.refused["stop"] != 0 {
			a.drop("stop")
		} else {
			out.Stop = p.Stop
		}
	}
	switch {
	case a.extends("max_tokens"):
	case p.MaxTokens > 0:
		out.MaxTokens = min(int64(p.MaxTokens), math.MaxInt32)
	case budget != nil && *budget > 0: // an answer must be longer than its thoughts
		out.MaxTokens = min(*budget+8192, math.MaxInt32)
	}
	for name, set := range map[string]bool{"seed": p.Seed != nil, "frequency_penalty": p.FrequencyPenalty != nil, "presence_penalty": p.PresencePenalty != nil} {
		if set && !a.extends(name) {
			a.drop(name)
		}
	}
	if out.Temperature != nil || out.TopP != nil || out.MaxTokens != 0 || out.Stop != nil {
		in.Inference = &out
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
