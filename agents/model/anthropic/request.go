package anthropic

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// ask is one call of Generate: the request, which may be sent several times, and the resulting
// turn.
type ask struct {
	req       *model.Request
	extended  map[string]json.RawMessage
	maxTokens int64
	refusals  *model.Refusals
	refused   map[string]int64 // parameters and features that the model is known to refuse
	dropped   []string         // of the last request
	pauses    int
	turn      *turn
}

// Features that a model may refuse, beside the parameters with AAIF's names.
const (
	native = "response_format " // structured output; the hash of a schema follows
	both   = "top_p beside temperature"
)

// nativeSchema is the name under which a refusal of the request's schema is stored.
func (a *ask) nativeSchema() string {
	sum := sha256.Sum256(a.req.Format.Schema)
	return native + string(sum[:])
}

func (m *Model) newAsk(req *model.Request, onDelta func(model.Delta) error) (*ask, error) {
	a := &ask{req: req, refusals: &m.refusals, refused: m.refusals.Of(req.Model), maxTokens: int64(m.cfg.MaxTokens), turn: &turn{onDelta: onDelta}}
	if len(req.Params.Extended) > 0 {
		if err := json.Unmarshal(req.Params.Extended, &a.extended); err != nil {
			return nil, err
		}
	}
	if budget := a.thinking().Budget; budget > 0 { // max_tokens includes the thoughts
		a.maxTokens += budget
	}
	if limit := a.refused["max_tokens"]; limit > 0 {
		a.maxTokens = min(a.maxTokens, limit)
	}
	if req.Params.MaxTokens > 0 {
		a.maxTokens = int64(req.Params.MaxTokens)
	}
	return a, nil
}

// thinking returns the member thinking of the extended parameters.
func (a *ask) thinking() (t struct {
	Type   string `json:"type"`
	Budget int64  `json:"budget_tokens"`
}) {
	_ = json.Unmarshal(a.extended["thinking"], &t) // the API reports a wrong form
	return t
}

// body returns the JSON of a request.
func (a *ask) body() ([]byte, error) {
	a.dropped = nil
	p := params{Model: a.req.Model, MaxTokens: a.maxTokens, Stream: a.turn.onDelta != nil}
	a.tools(&p)
	a.params(&p)
	messages := a.req.Messages
	if schema := a.schema(); schema != nil {
		p.OutputConfig = &outputConfig{outputFormat{"json_schema", schema}}
	} else {
		messages = model.InWords(a.req.Format, messages)
	}
	a.conversation(&p, messages)
	body, err := envelope.EncodeJSON(p)
	if err != nil {
		return nil, err
	}
	return a.extend(body)
}

// tools sets the request's tools. If there are none, it declares those that the conversation has
// called, because the API requires it, and forbids to call them.
func (a *ask) tools(p *params) {
	defs := model.CalledTools(a.req)
	if len(a.req.Tools) == 0 && len(defs) > 0 {
		p.ToolChoice = &toolChoice{"none"}
	}
	for _, d := range defs {
		t := tool{d.Name, d.Description, d.Parameters}
		if len(t.InputSchema) == 0 { // the API requires one
			t.InputSchema = json.RawMessage(`{"type":"object"}`)
		}
		p.Tools = append(p.Tools, t)
	}
}

// schema returns the schema of structured output; nil if there is none, or if it must be described
// in the prompt.
func (a *ask) schema() json.RawMessage {
	if a.req.Format.Type != model.FormatJSONSchema || a.refused[a.nativeSchema()] != 0 {
		return nil
	}
	return subset(a.req.Format.Schema)
}

// extend adds the extended parameters to a body.
func (a *ask) extend(body []byte) ([]byte, error) {
	if len(a.extended) == 0 {
		return body, nil
	}
	extended := []byte(a.req.Params.Extended)
	var ours struct {
		OutputConfig json.RawMessage `json:"output_config"`
	}
	if err := json.Unmarshal(body, &ours); err != nil {
		return nil, err
	}
	if theirs := a.extended["output_config"]; len(ours.OutputConfig) > 0 && len(theirs) > 0 && theirs[0] == '{' {
		both, err := model.Merge(ours.OutputConfig, theirs)
		if err != nil {
			return nil, err
		}
		if extended, err = model.Merge(extended, slices.Concat([]byte(`{"output_config":`), both, []byte(`}`))); err != nil {
			return nil, err
		}
	}
	return model.Merge(body, extended)
}

// params converts the standard parameters, and records those that the API does not accept.
func (a *ask) params(p *params) {
	in := a.req.Params
	thinks := a.thinking().Type == "enabled" || a.thinking().Type == "adaptive"
	if t := in.Temperature; t != nil {
		switch {
		case a.refused["temperature"] != 0 || thinks && *t != 1:
			a.drop("temperature")
		case *t > 1:
			a.drop("temperature")
			p.Temperature = new(1.0)
		default:
			p.Temperature = t
		}
	}
	if in.TopP != nil {
		if a.refused["top_p"] != 0 || a.refused[both] != 0 && (p.Temperature != nil || a.extends("temperature")) || thinks && *in.TopP < 0.95 {
			a.drop("top_p")
		} else {
			p.TopP = in.TopP
		}
	}
	for _, s := range in.Stop {
		if strings.TrimSpace(s) == "" || a.refused["stop"] != 0 { // the API refuses white space
			a.drop("stop")
		} else {
			p.StopSequences = append(p.StopSequences, s)
		}
	}
	if in.Seed != nil {
		a.drop("seed")
	}
	if in.FrequencyPenalty != nil {
		a.drop("frequency_penalty")
	}
	if in.PresencePenalty != nil {
		a.drop("presence_penalty")
	}
}

// members has the names in the body of standard parameters whose names differ there.
var members = map[string]string{"stop": "stop_sequences"}

// drop records a parameter that is left out, unless the extended parameters set it.
func (a *ask) drop(name string) {
	if !a.extends(name) && !slices.Contains(a.dropped, name) {
		a.dropped = append(a.dropped, name)
	}
}

func (a *ask) extends(name string) bool {
	if m, ok := members[name]; ok {
		name = m
	}
	_, ok := a.extended[name]
	return ok
}

var (
	saysFormat = pattern.Of(`(?i)output.?config|output.?format|structured.?output|json.?schema|\bschema`)
	saysTokens = pattern.Of(`max_tokens: \d+ > (\d+)`)
	saysTools  = pattern.Of(`(?i)\btools[.\[]`)
	saysParam  = pattern.Of(`\b(?:top_p|temperature|stop_sequences)\b`)
)

// retryWithoutRefused reports whether to send a refused request again without a parameter or feature that this
// package added, and remembers what to leave out.
func (a *ask) retryWithoutRefused(r *report) bool {
	if r.status != 400 || a.turn.begun() || a.pauses > 0 {
		return false
	}
	feature, note := a.refusedFeature(r.message)
	if feature == "" || a.refused[feature] != 0 {
		return false
	}
	a.refused[feature] = note
	a.refusals.Keep(a.req.Model, feature, note)
	return true
}

// refusedFeature returns the parameter or feature that a refusal is about, if this package sent it, and the
// note to remember for it; "" otherwise.
func (a *ask) refusedFeature(message string) (feature string, note int64) {
	in := a.req.Params
	sent := map[string]bool{"temperature": in.Temperature != nil, "top_p": in.TopP != nil, "stop": len(in.Stop) > 0}
	named := map[string]bool{}
	for _, name := range saysParam.RE().FindAllString(message, -1) {
		name = strings.TrimSuffix(name, "_sequences")
		named[name] = sent[name] && !a.extends(name)
	}
	if limit := saysTokens.RE().FindStringSubmatch(message); limit != nil && in.MaxTokens == 0 && !a.extends("max_tokens") {
		if n, err := strconv.ParseInt(limit[1], 10, 64); err == nil && n > 0 && n < a.maxTokens {
			a.maxTokens = n
			return "max_tokens", n
		}
	}
	switch {
	case named["top_p"] && strings.Contains(message, "temperature"):
		return both, 1
	case named["top_p"]:
		return "top_p", 1
	case named["temperature"]:
		return "temperature", 1
	case named["stop"]:
		return "stop", 1
	case a.schema() != nil && saysFormat.RE().MatchString(message) && !saysTools.RE().MatchString(message):
		return a.nativeSchema(), 1
	}
	return "", 0
}
