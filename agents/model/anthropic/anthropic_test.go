package anthropic_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/anthropic"
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
	answers []answer
	mu      sync.Mutex
	bodies  []string
	headers []http.Header
	paths   []string
}

type answer struct {
	status int
	header map[string]string
	body   string
}

func (c *canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	a := c.answers[min(len(c.bodies), len(c.answers)-1)]
	c.bodies = append(c.bodies, string(body))
	c.headers = append(c.headers, r.Header.Clone())
	c.paths = append(c.paths, r.URL.Path)
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	for k, v := range a.header {
		w.Header().Set(k, v)
	}
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	io.WriteString(w, a.body)
}

const fine = `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":2}}`

var hi = &model.Request{Model: "m", Messages: []model.Message{model.User("hi")}}

func always(body string) *canned { return &canned{answers: []answer{{body: body}}} }

func stream(events ...string) *canned {
	return &canned{answers: []answer{{header: map[string]string{"Content-Type": "text/event-stream"}, body: sse(events...)}}}
}

// sse joins events into a stream. Each is the JSON of its data.
func sse(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		var typ struct{ Type string }
		_ = json.Unmarshal([]byte(e), &typ)
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", typ.Type, e)
	}
	return b.String()
}

const start = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m-1","content":[],"stop_reason":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":30,"output_tokens":1}}}`

func begin(i int, block string) string {
	return fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, i, block)
}

func delta(i int, d string) string {
	return fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":%s}`, i, d)
}

func say(i int, text string) string {
	return delta(i, fmt.Sprintf(`{"type":"text_delta","text":%q}`, text))
}

func stop(reason string) string {
	return fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":%q,"stop_sequence":null},"usage":{"output_tokens":5}}`, reason)
}

const end = `{"type":"message_stop"}`

func f(v float64) *float64 { return &v }

func TestRequestOnTheWire(t *testing.T) {
	t.Parallel()
	seed := int64(7)
	call := model.ToolCall{ID: "c1", Name: "look", Arguments: json.RawMessage(`{"n":9007199254740993}`)}
	odd := model.ToolCall{ID: "functions.look:0", Name: "look", Arguments: json.RawMessage(`"{\"x\":"`)}
	req := &model.Request{
		Model: "claude-x",
		Messages: []model.Message{model.System("be <brief> & kind"), model.Assistant("Hello."), model.User("hi"), model.User(" "), model.User("there"),
			model.Assistant("", call, odd), model.ToolResult(call, json.RawMessage(`{"ok":true}`)), model.ToolFailure(odd, "no such thing"), model.User("and hurry"),
			model.System("more"), model.Assistant("done"), model.Assistant("  ")},
		Tools:  []model.ToolDef{{Name: "look", Description: "looks", Parameters: json.RawMessage(`{"type":"object","z":1.50,"a":9007199254740993}`)}, {Name: "bare"}},
		Format: model.Format{Type: model.FormatJSONSchema, Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","minimum":3}}}`)},
		Params: model.Params{Temperature: f(1.5), MaxTokens: 7, TopP: f(0.25), FrequencyPenalty: f(-1.5), PresencePenalty: f(2), Stop: []string{"END", "\n"}, Seed: &seed,
			Extended: json.RawMessage(`{"a.b*|#@{}": {"y": 1.50, "x": "<&>"}, "top_k": 9007199254740993, "presence_penalty": 1, "output_config": {"effort": "high"}}`)},
	}
	odds := model.PlainID("functions.look:0")
	want := `{"model":"claude-x","max_tokens":7,"temperature":1,"top_p":0.25,"stop_sequences":["END"],
		"system":[{"type":"text","text":"be <brief> & kind"},{"type":"text","text":"more"}],
		"messages":[{"role":"user","content":[{"type":"text","text":"Continue."}]},
			{"role":"assistant","content":[{"type":"text","text":"Hello."}]},
			{"role":"user","content":[{"type":"text","text":"hi"},{"type":"text","text":"there"}]},
			{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"look","input":{"n":9007199254740993}},{"type":"tool_use","id":"` + odds + `","name":"look","input":{"arguments":"{\"x\":"}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"{\"ok\":true}"}]},
				{"type":"tool_result","tool_use_id":"` + odds + `","is_error":true,"content":[{"type":"text","text":"no such thing"}]},{"type":"text","text":"and hurry"}]},
			{"role":"assistant","content":[{"type":"text","text":"done"}]},
			{"role":"user","content":[{"type":"text","text":"Continue."}]}],
		"tools":[{"name":"look","description":"looks","input_schema":{"type":"object","z":1.50,"a":9007199254740993}},{"name":"bare","input_schema":{"type":"object"}}],
		"output_config":{"effort":"high","format":{"type":"json_schema","schema":{"type":"object","additionalProperties":false,"properties":{"n":{"type":"integer","description":"{minimum: 3}"}}}}},
		"a.b*|#@{}":{"y": 1.50, "x": "<&>"},"top_k":9007199254740993,"presence_penalty":1}`
	c := always(fine)
	res, err := newModel(t, modeltest.Serve(t, c), func(cfg *anthropic.Config) { cfg.Betas = []string{"one", "two"} }).Generate(t.Context(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.bodies[0]; !modeltest.SameJSON(t, got, want) {
		t.Errorf("body\n got %s\nwant %s", got, want)
	}
	if !strings.Contains(c.bodies[0], `{"y": 1.50, "x": "<&>"}`) {
		t.Errorf("extended parameters did not travel byte for byte: %s", c.bodies[0])
	}
	if want := []string{"frequency_penalty", "seed", "stop", "temperature"}; !slices.Equal(res.Dropped, want) {
		t.Errorf("dropped %q, want %q", res.Dropped, want)
	}
	if h := c.headers[0]; h.Get("X-Api-Key") != testKey || h.Get("Anthropic-Version") == "" || h.Get("Anthropic-Beta") != "one,two" || c.paths[0] != "/v1/messages" {
		t.Errorf("headers %v", h)
	}

	c = always(fine)
	plain := newModel(t, modeltest.Serve(t, c)+"/proxy/v1/", func(cfg *anthropic.Config) { cfg.Key = nil })
	if _, err := plain.Generate(t.Context(), hi, func(model.Delta) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if want := `{"model":"m","max_tokens":8192,"stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`; !modeltest.SameJSON(t, c.bodies[0], want) {
		t.Errorf("body %s, want %s", c.bodies[0], want)
	}
	if _, ok := c.headers[0]["X-Api-Key"]; ok || c.paths[0] != "/proxy/v1/messages" {
		t.Errorf("without a key: path %s, headers %v", c.paths[0], c.headers[0])
	}
}

func TestToolsOfThePastAreDeclared(t *testing.T) {
	t.Parallel()
	call := model.ToolCall{ID: "a", Name: "look", Arguments: json.RawMessage(`{}`)}
	req := &model.Request{Model: "m", Messages: []model.Message{model.User("hi"), model.Assistant("", call), model.ToolResult(call, json.RawMessage(`1`))}}
	if _, err := newModel(t, double(t, modeltest.Turn{}, modeltest.Turn{Text: "ok"}).URL).Generate(t.Context(), req, nil); err != nil {
		t.Error(err)
	}
	c := always(fine)
	if _, err := newModel(t, modeltest.Serve(t, c)).Generate(t.Context(), req, nil); err != nil {
		t.Fatal(err)
	}
	if got := c.bodies[0]; !strings.Contains(got, `"tool_choice":{"type":"none"}`) || !strings.Contains(got, `"tools":[{"name":"look","input_schema":{"type":"object"}}]`) {
		t.Errorf("body %s", got)
	}
}

func TestExtendedWins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		params  model.Params
		want    map[string]string // of the body
		dropped []string
	}{
		{model.Params{Temperature: f(0.5), TopP: f(0.5), Extended: json.RawMessage(`{"thinking":{"type":"enabled","budget_tokens":20000}}`)},
			map[string]string{"max_tokens": `28192`, "temperature": ``, "top_p": ``, "thinking": `{"type":"enabled","budget_tokens":20000}`}, []string{"temperature", "top_p"}},
		{model.Params{Extended: json.RawMessage(`{"thinking":{"type":"enabled","budget_tokens":5000}}`)}, map[string]string{"max_tokens": `13192`}, nil},
		{model.Params{MaxTokens: 6000, Extended: json.RawMessage(`{"thinking":{"type":"enabled","budget_tokens":5000}}`)}, map[string]string{"max_tokens": `6000`}, nil},
		{model.Params{Temperature: f(1), TopP: f(0.95), Extended: json.RawMessage(`{"thinking":{"type":"adaptive"}}`)},
			map[string]string{"max_tokens": `8192`, "temperature": `1`, "top_p": `0.95`}, nil},
		{model.Params{Temperature: f(0.5), Extended: json.RawMessage(`{"thinking":{"type":"disabled"}}`)},
			map[string]string{"temperature": `0.5`}, nil},
		{model.Params{Temperature: f(2), MaxTokens: 5, Stop: []string{" "}, Extended: json.RawMessage(`{"temperature":0.70,"max_tokens":6,"stop_sequences":["x"],"tools":[]}`)},
			map[string]string{"temperature": `0.70`, "max_tokens": `6`, "stop_sequences": `["x"]`, "tools": `[]`}, nil},
		{model.Params{MaxTokens: 300, Extended: json.RawMessage(`{"thinking":"what"}`)}, map[string]string{"max_tokens": `300`, "thinking": `"what"`}, nil},
	} {
		server := always(fine)
		req := *hi
		req.Params = c.params
		res, err := newModel(t, modeltest.Serve(t, server)).Generate(t.Context(), &req, nil)
		if err != nil {
			t.Fatal(err)
		}
		var body map[string]json.RawMessage
		if err := json.Unmarshal([]byte(server.bodies[0]), &body); err != nil {
			t.Fatal(err)
		}
		for name, want := range c.want {
			if got := string(body[name]); got != want {
				t.Errorf("%s: %s is %s, want %s", c.params.Extended, name, got, want)
			}
		}
		if !slices.Equal(res.Dropped, c.dropped) {
			t.Errorf("%s: dropped %q, want %q", c.params.Extended, res.Dropped, c.dropped)
		}
	}
}

// refusal returns the API's answer to a refused request.
func refusal(message string) answer {
	body, _ := json.Marshal(errorBody("invalid_request_error", message))
	return answer{status: 400, body: string(body)}
}

func TestRefusedWordsAreLeftOut(t *testing.T) {
	t.Parallel()
	schema := model.Format{Type: model.FormatJSONSchema, Schema: json.RawMessage(`{"type":"object","properties":{"me":{"$ref":"#"}}}`)}
	both := model.Params{Temperature: f(0.5), TopP: f(0.5), Stop: []string{"END"}}
	const twice = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
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
		"only one of two":            {both, model.Format{}, []string{twice}, 2, `"temperature":0.5`, `"top_p"`, []string{"top_p"}, false},
		"neither":                    {both, model.Format{}, []string{twice, "`temperature` is deprecated for this model.", "`top_p` is deprecated, too"}, 4, `"END"`, `"temperature"`, []string{"temperature", "top_p"}, false},
		"the same once more":         {both, model.Format{}, []string{twice, twice, twice}, 2, ``, ``, nil, true},
		"stop sequences":             {both, model.Format{}, []string{"stop_sequences: not supported"}, 2, `"top_p"`, `stop_sequences`, []string{"stop"}, false},
		"native structured output":   {both, schema, []string{"output_config.format.schema: recursive schemas are not supported"}, 2, `valid against this JSON Schema:\n{\"type\":\"object\",\"properties\":{\"me\":{\"$ref\":\"#\"}}}`, `output_config`, nil, false},
		"a tool's schema":            {both, schema, []string{"tools.0.custom.input_schema: JSON schema is invalid"}, 1, ``, ``, nil, true},
		"fewer tokens than ours":     {model.Params{}, model.Format{}, []string{"max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens for m"}, 2, `"max_tokens":4096`, `8192`, nil, false},
		"fewer tokens than theirs":   {model.Params{MaxTokens: 9000}, model.Format{}, []string{"max_tokens: 9000 > 4096, which is the maximum"}, 1, ``, ``, nil, true},
		"what extended asks for":     {model.Params{Temperature: f(0.1), Extended: json.RawMessage(`{"temperature":0.5}`)}, model.Format{}, []string{"temperature: no"}, 1, ``, ``, nil, true},
		"what was not asked for":     {model.Params{}, model.Format{}, []string{"temperature: no"}, 1, ``, ``, nil, true},
		"something else that it has": {both, schema, []string{"messages.0: no"}, 1, ``, ``, nil, true},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			for _, streamed := range []bool{false, true} {
				server := &canned{}
				for _, s := range c.says {
					server.answers = append(server.answers, refusal(s))
				}
				server.answers = append(server.answers, answer{body: fine})
				var onDelta func(model.Delta) error
				var told string
				if streamed {
					onDelta = func(d model.Delta) error { told += d.Text; return nil }
				}
				req := *hi
				req.Params, req.Format = c.params, c.format
				res, err := newModel(t, modeltest.Serve(t, server)).Generate(t.Context(), &req, onDelta)
				if len(server.bodies) != c.tries {
					t.Fatalf("%d requests, want %d; error %v", len(server.bodies), c.tries, err)
				}
				last := server.bodies[len(server.bodies)-1]
				if c.fails {
					if !errors.Is(err, model.ErrBadRequest) {
						t.Errorf("response %+v, error %v, want %v", res, err, model.ErrBadRequest)
					}
					continue
				}
				if err != nil || !strings.Contains(last, c.last) || c.without != "" && strings.Contains(last, c.without) || !slices.Equal(res.Dropped, c.dropped) {
					t.Errorf("error %v, response %+v, last body %s", err, res, last)
				}
				if streamed && told != "ok" {
					t.Errorf("streamed %q", told)
				}
			}
		})
	}
}

func TestRefusalsAreKeptInMind(t *testing.T) {
	t.Parallel()
	server := &canned{answers: []answer{refusal("`temperature` and `top_p` cannot both be specified for this model."), refusal("output_config.format: no such schema"), refusal("max_tokens: 8192 > 4096, which is the maximum"), {body: fine}}}
	m := newModel(t, modeltest.Serve(t, server))
	req := *hi
	req.Params = model.Params{Temperature: f(0.5), TopP: f(0.5)}
	req.Format = model.Format{Type: model.FormatJSONSchema, Schema: json.RawMessage(`{"type":"object"}`)}
	for range 2 {
		if _, err := m.Generate(t.Context(), &req, nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(server.bodies) != 5 || server.bodies[3] != server.bodies[4] || !strings.Contains(server.bodies[4], `"max_tokens":4096`) {
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
		if last := server.bodies[len(server.bodies)-1]; !strings.Contains(last, `"top_p":0.5`) || !strings.Contains(last, "output_config") {
			t.Errorf("body %s", last)
		}
	}
}

func TestFormatsWithoutASchemaAreAskedForInWords(t *testing.T) {
	t.Parallel()
	for _, format := range []model.Format{
		{Type: model.FormatJSON},
		{Type: model.FormatJSONSchema, Schema: json.RawMessage(`{"type":["object","null"]}`)}, // not in the subset
		{Type: model.FormatJSONSchema, Schema: json.RawMessage(`{"minProperties":1}`)},        // nothing is left of it
	} {
		c := always(fine)
		req := *hi
		req.Format = format
		req.Messages = append([]model.Message{model.System("mind the gap")}, hi.Messages...)
		if _, err := newModel(t, modeltest.Serve(t, c)).Generate(t.Context(), &req, nil); err != nil {
			t.Fatal(err)
		}
		if got := c.bodies[0]; strings.Contains(got, "output_config") || !strings.Contains(got, `mind the gap`) || !strings.Contains(got, "Answer with one JSON value") ||
			format.Schema != nil && !strings.Contains(got, strings.ReplaceAll(string(format.Schema), `"`, `\"`)) {
			t.Errorf("body %s", got)
		}
	}
}
