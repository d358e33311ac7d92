package bedrock_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

func TestConforms(t *testing.T) {
	t.Parallel()
	modeltest.Run(t, func(t *testing.T, turns ...modeltest.Turn) model.Model {
		return newModel(t, double(t, turns...).URL)
	})
}

// canned serves answers, repeats the last one, and records the requests.
type canned struct {
	answers []http.HandlerFunc
	mu      sync.Mutex
	bodies  []string
	headers []http.Header
	paths   []string
}

func (c *canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	answer := c.answers[min(len(c.bodies), len(c.answers)-1)]
	c.bodies = append(c.bodies, string(body))
	c.headers = append(c.headers, r.Header.Clone())
	c.paths = append(c.paths, r.URL.EscapedPath())
	c.mu.Unlock()
	answer(w, r)
}

func always(body string) *canned { return &canned{answers: []http.HandlerFunc{says(body)}} }

func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, body)
	}
}

func refuses(status int, code, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fail(w, status, code, message) }
}

const fine = `{"output":{"message":{"role":"assistant","content":[{"text":"ok"}]}},"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3}}`

var hi = &model.Request{Model: "m", Messages: []model.Message{model.User("hi")}}

func streamsFine(w http.ResponseWriter, _ *http.Request) {
	e := newEvents(w)
	e.send("contentBlockDelta", map[string]any{"contentBlockIndex": 0, "delta": map[string]any{"text": "ok"}})
	e.send("messageStop", map[string]any{"stopReason": "end_turn"})
}

// either answers Converse and ConverseStream alike.
func either(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "-stream") {
		streamsFine(w, r)
		return
	}
	says(fine)(w, r)
}

func f(v float64) *float64 { return &v }

func TestRequestOnTheWire(t *testing.T) {
	t.Parallel()
	seed := int64(7)
	call := model.ToolCall{ID: "c1", Name: "look", Arguments: json.RawMessage(`{"n": 9007199254740993}`)}
	odd := model.ToolCall{ID: "functions.look:0", Name: "look", Arguments: json.RawMessage(`"{\"x\":"`)}
	req := &model.Request{
		Model: "arn:aws:bedrock:eu-central-1:1:inference-profile/eu.x.y-v1:0",
		Messages: []model.Message{model.System("be <brief> & kind"), model.Assistant("Hello."), model.User("hi"), model.User(" "), model.User("there"),
			model.Assistant("", call, odd), model.ToolResult(call, json.RawMessage(`{"ok":true}`)), model.ToolFailure(odd, " "), model.User("and hurry"),
			model.System("more"), model.Assistant("done"), model.Assistant("  ")},
		Tools:  []model.ToolDef{{Name: "look", Description: "looks", Parameters: json.RawMessage(`{"type":"object","z":1.50,"a":9007199254740993}`)}, {Name: "bare"}},
		Format: model.Format{Type: model.FormatJSONSchema, Name: "no name", Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","minimum":3}}}`)},
		Params: model.Params{Temperature: f(1.5), MaxTokens: 7, TopP: f(0.7), FrequencyPenalty: f(-1.5), PresencePenalty: f(2), Stop: []string{"END", "\n"}, Seed: &seed,
			Extended: json.RawMessage(` {"a.b*|#@{}": {"y": 1.50, "x": "<&>"}, "top_k": 9007199254740993, "presence_penalty": 1}`)},
	}
	odds := model.PlainID("functions.look:0")
	want := `{"inferenceConfig":{"maxTokens":7,"temperature":1,"topP":0.7,"stopSequences":["END","\n"]},
		"system":[{"text":"be <brief> & kind"},{"text":"more"}],
		"messages":[{"role":"user","content":[{"text":"Continue."}]},
			{"role":"assistant","content":[{"text":"Hello."}]},
			{"role":"user","content":[{"text":"hi"},{"text":"there"}]},
			{"role":"assistant","content":[{"toolUse":{"toolUseId":"c1","name":"look","input":{"n":9007199254740993}}},{"toolUse":{"toolUseId":"` + odds + `","name":"look","input":{"arguments":"{\"x\":"}}}]},
			{"role":"user","content":[{"toolResult":{"toolUseId":"c1","content":[{"text":"{\"ok\":true}"}]}},
				{"toolResult":{"toolUseId":"` + odds + `","status":"error","content":[{"text":"(nothing)"}]}},{"text":"and hurry"}]},
			{"role":"assistant","content":[{"text":"done"}]},
			{"role":"user","content":[{"text":"Continue."}]}],
		"toolConfig":{"tools":[{"toolSpec":{"name":"look","description":"looks","inputSchema":{"json":{"type":"object","z":1.50,"a":9007199254740993}}}},{"toolSpec":{"name":"bare","inputSchema":{"json":{"type":"object"}}}}]},
		"outputConfig":{"textFormat":{"type":"json_schema","structure":{"jsonSchema":{"name":"output","schema":"{\"additionalProperties\":false,\"properties\":{\"n\":{\"type\":\"integer\"}},\"type\":\"object\"}"}}}},
		"additionalModelRequestFields":{"a.b*|#@{}":{"y": 1.50, "x": "<&>"},"top_k":9007199254740993,"presence_penalty":1}}`
	for _, streamed := range []bool{false, true} {
		c := &canned{answers: []http.HandlerFunc{either}}
		m := newModel(t, modeltest.Serve(t, c))
		var onDelta func(model.Delta) error
		path := "/model/arn%3Aaws%3Abedrock%3Aeu-central-1%3A1%3Ainference-profile%2Feu.x.y-v1%3A0/converse"
		if streamed {
			onDelta, path = func(model.Delta) error { return nil }, path+"-stream"
		}
		res, err := m.Generate(t.Context(), req, onDelta)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.bodies[0]; !modeltest.SameJSON(t, got, want) {
			t.Errorf("body\n got %s\nwant %s", got, want)
		}
		if !strings.Contains(c.bodies[0], `{"a.b*|#@{}": {"y": 1.50, "x": "<&>"}, "top_k": 9007199254740993, "presence_penalty": 1}`) || !strings.Contains(c.bodies[0], `{"n":9007199254740993}`) {
			t.Errorf("what should travel byte for byte did not: %s", c.bodies[0])
		}
		if want := []string{"frequency_penalty", "seed", "temperature"}; !slices.Equal(res.Dropped, want) {
			t.Errorf("dropped %q, want %q", res.Dropped, want)
		}
		if c.paths[0] != path {
			t.Errorf("path %s, want %s", c.paths[0], path)
		}
	}

	c := always(fine)
	if _, err := newModel(t, modeltest.Serve(t, c)).Generate(t.Context(), hi, nil); err != nil {
		t.Fatal(err)
	}
	if want := `{"messages":[{"role":"user","content":[{"text":"hi"}]}]}`; !modeltest.SameJSON(t, c.bodies[0], want) {
		t.Errorf("body %s, want %s", c.bodies[0], want)
	}
}

func TestToolsOfThePastAreDeclared(t *testing.T) {
	t.Parallel()
	c := always(fine)
	call := model.ToolCall{ID: "a", Name: "look", Arguments: json.RawMessage(`{}`)}
	req := &model.Request{Model: "m", Messages: []model.Message{model.User("hi"), model.Assistant("", call), model.ToolResult(call, json.RawMessage(`1`))}}
	if _, err := newModel(t, modeltest.Serve(t, c)).Generate(t.Context(), req, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(c.bodies[0], `"toolConfig":{"tools":[{"toolSpec":`) || !strings.Contains(c.bodies[0], `"look"`) {
		t.Errorf("body %s", c.bodies[0])
	}
}

func TestExtendedWins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		params  model.Params
		want    string // inferenceConfig
		dropped []string
	}{
		{model.Params{Temperature: f(0.5), TopP: f(0.5), Extended: json.RawMessage(`{"thinking":{"type":"enabled","budget_tokens":20000}}`)}, `{"maxTokens":28192}`, []string{"temperature", "top_p"}},
		{model.Params{Temperature: f(1), TopP: f(0.95), MaxTokens: 3, Extended: json.RawMessage(`{"reasoning_config":{"type":"adaptive"}}`)}, `{"maxTokens":3,"temperature":1,"topP":0.95}`, nil},
		{model.Params{Temperature: f(0.5), Extended: json.RawMessage(`{"thinking":{"type":"disabled"}}`)}, `{"temperature":0.5}`, nil},
		{model.Params{Temperature: f(2), TopP: f(1), MaxTokens: 5, Stop: []string{"x"}, Extended: json.RawMessage(`{"temperature":0.70,"topP":1,"max_gen_len":6,"stop_sequences":["x"]}`)}, `null`, nil},
	} {
		server := always(fine)
		req := *hi
		req.Params = c.params
		res, err := newModel(t, modeltest.Serve(t, server)).Generate(t.Context(), &req, nil)
		if err != nil {
			t.Fatal(err)
		}
		var body struct{ InferenceConfig, AdditionalModelRequestFields json.RawMessage }
		if err := json.Unmarshal([]byte(server.bodies[0]), &body); err != nil {
			t.Fatal(err)
		}
		if body.InferenceConfig == nil {
			body.InferenceConfig = json.RawMessage(`null`)
		}
		if !modeltest.SameJSON(t, string(body.InferenceConfig), c.want) || string(body.AdditionalModelRequestFields) != string(c.params.Extended) || !slices.Equal(res.Dropped, c.dropped) {
			t.Errorf("%s: %s, dropped %q, want %s and %q", c.params.Extended, server.bodies[0], res.Dropped, c.want, c.dropped)
		}
	}
}

func TestRefusedWordsAreLeftOut(t *testing.T) {
	t.Parallel()
	schema := model.Format{Type: model.FormatJSONSchema, Schema: json.RawMessage(`{"type":"object"}`)}
	both := model.Params{Temperature: f(0.5), TopP: f(0.5), Stop: []string{"END"}}
	const twice = "The model returned the following errors: `temperature` and `top_p` cannot both be specified for this model. Please use only one."
	for name, c := range map[string]struct {
		params  model.Params
		format  model.Format
		says    []string
		tries   int
		last    string // must be in the last body
		without string // is not
		dropped []string
		fails   bool
	}{
		"only one of two":          {both, model.Format{}, []string{twice}, 2, `"temperature":0.5`, `"topP"`, []string{"top_p"}, false},
		"neither":                  {both, model.Format{}, []string{twice, "temperature is deprecated for this model", "`top_p` is deprecated, too"}, 4, `"END"`, `"temperature"`, []string{"temperature", "top_p"}, false},
		"the same for ever":        {both, model.Format{}, []string{twice, twice, twice}, 2, ``, ``, nil, true},
		"stop sequences":           {both, model.Format{}, []string{"This model doesn't support the stopSequences field. Remove stopSequences and try again."}, 2, `"topP"`, `stopSequences`, []string{"stop"}, false},
		"native structured output": {both, schema, []string{"This model doesn't support the outputConfig.textFormat field. Remove it and try again."}, 2, `valid against this JSON Schema:\n{\"type\":\"object\"}`, `outputConfig`, nil, false},
		"a tool's schema":          {both, schema, []string{"The value at toolConfig.tools.0.toolSpec.inputSchema.json.type must be object; a JSON schema"}, 1, ``, ``, nil, true},
		"a system prompt":          {both, schema, []string{"This model doesn't support the system field. Remove system and try again."}, 2, `{"role":"user","content":[{"text":"be brief"},{"text":"hi"}]}`, `"system"`, nil, false},
		"what extended asks for":   {model.Params{Temperature: f(0.1), Extended: json.RawMessage(`{"temperature":0.5}`)}, model.Format{}, []string{"temperature: no"}, 1, ``, ``, nil, true},
		"what was not asked for":   {model.Params{}, model.Format{}, []string{"temperature: no"}, 1, ``, ``, nil, true},
		"something else":           {both, schema, []string{"The provided model identifier is invalid."}, 1, ``, ``, nil, true},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			for _, streamed := range []bool{false, true} {
				server := &canned{}
				for _, s := range c.says {
					server.answers = append(server.answers, refuses(400, "ValidationException", s))
				}
				server.answers = append(server.answers, either)
				var onDelta func(model.Delta) error
				if streamed {
					onDelta = func(model.Delta) error { return nil }
				}
				req := &model.Request{Model: "m", Messages: []model.Message{model.System("be brief"), model.User("hi")}, Params: c.params, Format: c.format}
				res, err := newModel(t, modeltest.Serve(t, server)).Generate(t.Context(), req, onDelta)
				if len(server.bodies) != c.tries {
					t.Fatalf("%d requests, want %d; error %v", len(server.bodies), c.tries, err)
				}
				if c.fails {
					if !errors.Is(err, model.ErrBadRequest) {
						t.Errorf("response %+v, error %v, want %v", res, err, model.ErrBadRequest)
					}
					continue
				}
				last := server.bodies[len(server.bodies)-1]
				has := strings.Contains(last, c.last) || strings.Contains(last, `{"content":[{"text":"be brief"},{"text":"hi"}],"role":"user"}`) && c.without == `"system"`
				if err != nil || !has || strings.Contains(last, c.without) || !slices.Equal(res.Dropped, c.dropped) {
					t.Errorf("error %v, response %+v, last body %s", err, res, last)
				}
			}
		})
	}
}

func TestWithoutStreamingTheAnswerIsToldAtOnce(t *testing.T) {
	t.Parallel()
	server := &canned{answers: []http.HandlerFunc{refuses(400, "ValidationException", "This model doesn't support tool use in streaming mode."), either}}
	var told []string
	res, err := newModel(t, modeltest.Serve(t, server)).Generate(t.Context(), hi, func(d model.Delta) error { told = append(told, d.Text); return nil })
	if err != nil || res.Message.Content != "ok" || !slices.Equal(told, []string{"ok"}) || len(server.paths) != 2 || strings.HasSuffix(server.paths[1], "stream") {
		t.Errorf("response %+v, error %v, told %q, paths %q", res, err, told, server.paths)
	}
}

func TestRefusalsAreKeptInMind(t *testing.T) {
	t.Parallel()
	const twice = "The model returned the following errors: `temperature` and `top_p` cannot both be specified for this model."
	server := &canned{answers: []http.HandlerFunc{refuses(400, "ValidationException", twice), refuses(400, "ValidationException", "outputConfig: no such schema"), either}}
	m := newModel(t, modeltest.Serve(t, server))
	req := *hi
	req.Params = model.Params{Temperature: f(0.5), TopP: f(0.5)}
	req.Format = model.Format{Type: model.FormatJSONSchema, Schema: json.RawMessage(`{"type":"object"}`)}
	for range 2 {
		if _, err := m.Generate(t.Context(), &req, nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(server.bodies) != 4 || server.bodies[2] != server.bodies[3] {
		t.Errorf("%d requests: %q", len(server.bodies), server.bodies)
	}
	alone, other := req, req // parameters that were not refused are still sent, and all of them to another model
	alone.Params.Temperature = nil
	alone.Format.Schema = json.RawMessage(`{"type":"object","properties":{}}`)
	other.Model = "n"
	for _, r := range []*model.Request{&alone, &other} {
		if _, err := m.Generate(t.Context(), r, nil); err != nil {
			t.Fatal(err)
		}
		if last := server.bodies[len(server.bodies)-1]; !strings.Contains(last, `"topP":0.5`) || !strings.Contains(last, "outputConfig") {
			t.Errorf("body %s", last)
		}
	}
}

// The subset of a schema, and the schemas that go into the prompt instead.
func TestSchemasAreNarrowed(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"type":"object","properties":{"a":{"type":"string","pattern":"x","maxLength":3},"b":{"type":"array","items":{"type":"object"},"minItems":2}},"required":["a"],"$schema":"x"}`: `{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"type":"string"},"b":{"type":"array","items":{"type":"object","additionalProperties":false}}}}`,
		`{"type":"object","additionalProperties":{"type":"object","minProperties":1}}`:                                                                                                  `{"type":"object","additionalProperties":{"type":"object","additionalProperties":false}}`,
		`{"properties":{},"additionalProperties":true}`:                                                                                                                                 `{"properties":{},"additionalProperties":false}`,
		`{"oneOf":[{"type":"string"},true],"type":["object","string"]}`:                                                                                                                 `{"anyOf":[{"type":"string"},true],"type":["object","string"]}`,
		`{"$ref":"#/$defs/pattern","$defs":{"pattern":{"type":"object","properties":{"maxLength":{"type":"integer"}}}}}`:                                                                `{"$ref":"#/$defs/pattern","$defs":{"pattern":{"type":"object","additionalProperties":false,"properties":{"maxLength":{"type":"integer"}}}}}`,
		`{"type":"integer","enum":[9007199254740993,1e2],"const":9007199254740993,"default":1.0}`:                                                                                       `{"type":"integer","enum":[9007199254740993,1e2],"const":9007199254740993,"default":1.0}`,
		`{"minProperties":1}`: ``,
		`{}`:                  ``,
	} {
		server := always(fine)
		req := *hi
		req.Format = model.Format{Type: model.FormatJSONSchema, Schema: json.RawMessage(in)}
		if _, err := newModel(t, modeltest.Serve(t, server)).Generate(t.Context(), &req, nil); err != nil {
			t.Fatal(err)
		}
		var body wireRequest
		if err := json.Unmarshal([]byte(server.bodies[0]), &body); err != nil {
			t.Fatal(err)
		}
		if (body.OutputConfig != nil) != (want != "") {
			t.Errorf("%s: body %s", in, server.bodies[0])
			continue
		}
		if want == "" {
			if len(body.System) != 1 || !strings.Contains(body.System[0].Text, in) {
				t.Errorf("%s is not asked for in words: %s", in, server.bodies[0])
			}
			continue
		}
		if got := body.OutputConfig.TextFormat.Structure.JSONSchema.Schema; !modeltest.SameJSON(t, got, want) {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}
