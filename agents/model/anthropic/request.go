package anthropic

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// ask is one Generate: what is asked, in as many requests as it takes, and the
// turn that comes of it.
type ask struct {
	req       *model.Request
	extended  map[string]json.RawMessage
	maxTokens int64
	refusals  *model.Refusals
	refused   map[string]int64 // what the model is known not to take
	dropped   []string         // of the last body
	pauses    int
	turn      *turn
}

// What a model may refuse besides the parameters that have AAIF's names.
const (
	native = "response_format " // the API's own structured output, by a schema's hash
	both   = "top_p beside temperature"
)

// nativeSchema is the name of structured output by the request's schema.
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

// thinking is what the extended parameters say of it.
func (a *ask) thinking() (t struct {
	Type   string `json:"type"`
	Budget int64  `json:"budget_tokens"`
}) {
	_ = json.Unmarshal(a.extended["thinking"], &t) // not ours to judge
	return t
}

// body is the JSON of a request.
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
	body, err := endpoint.Encode(p)
	if err != nil {
		return nil, err
	}
	return a.extend(body)
}

// tools are those of the request; where there are none, those that were called
// before, which the API wants to know, and which are not to be called again.
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

// schema is that of structured output, nil where there is none or where it has
// to be asked for in words.
func (a *ask) schema() json.RawMessage {
	if a.req.Format.Type != model.FormatJSONSchema || a.refused[a.nativeSchema()] != 0 {
		return nil
	}
	return subset(a.req.Format.Schema)
}

// extend puts the extended parameters into a body.
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

// params maps the standard parameters, and notes what the API does not take.
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

// members are the names that standard parameters have in the body, where they
// differ.
var members = map[string]string{"stop": "stop_sequences"}

// drop notes a parameter that is left out, unless the extended ones have it.
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

// concede reports whether a refused request is worth sending again without
// something that this package made of the port's words, and keeps in mind what
// to leave out.
func (a *ask) concede(r *report) bool {
	if r.status != 400 || a.turn.begun() || a.pauses > 0 {
		return false
	}
	what, note := a.blame(r.message)
	if what == "" || a.refused[what] != 0 {
		return false
	}
	a.refused[what] = note
	a.refusals.Keep(a.req.Model, what, note)
	return true
}

// blame is what a refusal is about, if that is ours and was sent.
func (a *ask) blame(message string) (what string, note int64) {
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
