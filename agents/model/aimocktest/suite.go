package aimocktest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

// NewFunc makes the model under test, which sends requests to stage.URL.
type NewFunc func(t *testing.T, stage *Stage) model.Model

// Options are the differences between families. The zero value suits OpenAI's.
type Options struct {
	// Model is the name of the requested model. Default "m".
	Model string

	// Extended are the extended parameters. The default has numbers, names and
	// nesting that a faulty adapter would change.
	Extended json.RawMessage

	// ExtendedAt is the path in the body at which the members of Extended must
	// be. Default: the root.
	ExtendedAt []string

	// Schema checks that a request for JSON by a schema contains that schema,
	// and fails the test otherwise. Default: the schema may be anywhere in the
	// body, byte for byte except for white space.
	Schema func(t *testing.T, body []byte)
}

const defaultExtended = `{"vendor.knob*":{"x":[1,2.50,9007199254740993],"on":true,"none":null},"another_knob":"<&>"}`

const schema = `{"type":"object","properties":{"city":{"type":"string"},"n":{"type":"integer"}},"required":["city","n"],"additionalProperties":false}`

const answer = "The rain in Spain stays mainly in the plain, «says» the song, and {so} say all of those who sing it.\n"

// Run tests a model family against aimock: plain, streaming, a tool call,
// parallel calls, structured output, extended parameters sent verbatim, 429
// with Retry-After, and a stream that breaks.
func Run(t *testing.T, s *Server, o Options, newModel NewFunc) {
	t.Helper()
	o.Model = cmp.Or(o.Model, "m")
	if len(o.Extended) == 0 {
		o.Extended = json.RawMessage(defaultExtended)
	}
	if o.Schema == nil {
		o.Schema = wantSchema
	}
	for _, c := range []struct {
		name string
		test func(*proof)
	}{
		{"plain", (*proof).plain},
		{"streaming", (*proof).streaming},
		{"a tool call", (*proof).toolCall},
		{"parallel calls", (*proof).parallelCalls},
		{"structured output", (*proof).structured},
		{"extended parameters", (*proof).extended},
		{"429 with Retry-After", (*proof).rateLimited},
		{"other failures", (*proof).failures},
		{"a stream that is cut", (*proof).cut},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			c.test(&proof{T: t, server: s, o: o, newModel: newModel})
		})
	}
}

// proof is one test of the suite.
type proof struct {
	*testing.T
	server   *Server
	o        Options
	newModel NewFunc
}

func (p *proof) stage(turns ...modeltest.Turn) (*Stage, model.Model) {
	p.Helper()
	stage := p.server.Stage(p, turns...)
	return stage, p.newModel(p.T, stage)
}

func (p *proof) request() *model.Request {
	return &model.Request{Model: p.o.Model, Messages: []model.Message{model.System("be brief"), model.User("hi")}}
}

// generate calls the model, and returns the streamed text, too.
func (p *proof) generate(m model.Model, req *model.Request, stream bool) (*model.Response, string, error) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	var told strings.Builder
	var onDelta func(model.Delta) error
	if stream {
		onDelta = func(d model.Delta) error { told.WriteString(d.Text); return nil }
	}
	res, err := m.Generate(ctx, req, onDelta)
	return res, told.String(), err
}

func (p *proof) must(m model.Model, req *model.Request, stream bool) (*model.Response, string) {
	p.Helper()
	res, told, err := p.generate(m, req, stream)
	if err != nil {
		p.Fatalf("stream %v: %v", stream, err)
	}
	if stream && told != res.Message.Content {
		p.Errorf("streamed %q, answered %q", told, res.Message.Content)
	}
	return res, told
}

func (p *proof) plain() {
	usage := model.Usage{InputTokens: 12, OutputTokens: 34}
	stage, m := p.stage(modeltest.Turn{Text: answer, Usage: usage})
	res, _ := p.must(m, p.request(), false)
	if res.Message.Content != answer || res.Finish != model.FinishStop || res.Usage != usage || res.Model == "" {
		p.Errorf("response %+v, want %q with usage %+v", res, answer, usage)
	}
	if got := stage.Requests(); len(got) != 1 {
		p.Errorf("%d requests for one turn", len(got))
	}
}

func (p *proof) streaming() {
	_, m := p.stage(modeltest.Turn{Text: answer})
	var pieces int
	res, err := m.Generate(p.Context(), p.request(), func(model.Delta) error { pieces++; return nil })
	if err != nil {
		p.Fatal(err)
	}
	if res.Message.Content != answer || res.Finish != model.FinishStop || pieces < 2 {
		p.Errorf("response %+v in %d pieces, want %q in some", res, pieces, answer)
	}
	p.must(m, p.request(), true)
}

var look = model.ToolDef{Name: "look", Description: "looks", Parameters: json.RawMessage(schema)}

func (p *proof) toolCall() {
	for _, stream := range []bool{false, true} {
		_, m := p.stage(
			modeltest.Turn{Calls: []model.ToolCall{{ID: "call_a", Name: "look", Arguments: json.RawMessage(`{"city":"«Zürich» \"x\"","n":3}`)}}},
			modeltest.Turn{Text: "sunny in Zürich"})
		req := p.request()
		req.Tools = []model.ToolDef{look}
		res, _ := p.must(m, req, stream)
		calls := res.Message.ToolCalls
		if res.Finish != model.FinishToolCalls || len(calls) != 1 || calls[0].Name != "look" || calls[0].ID == "" {
			p.Fatalf("stream %v: response %+v, want a call of look", stream, res)
		}
		p.sameJSON(calls[0].Arguments, `{"city":"«Zürich» \"x\"","n":3}`)
		req.Messages = append(req.Messages, res.Message, model.ToolResult(calls[0], json.RawMessage(`{"sky":"blue"}`)))
		if res, _ := p.must(m, req, stream); res.Message.Content != "sunny in Zürich" || res.Finish != model.FinishStop {
			p.Errorf("stream %v: after the result %+v", stream, res)
		}
	}
}

func (p *proof) parallelCalls() {
	for _, stream := range []bool{false, true} {
		_, m := p.stage(modeltest.Turn{Calls: []model.ToolCall{
			{ID: "call_a", Name: "look", Arguments: json.RawMessage(`{"n":1}`)},
			{ID: "call_b", Name: "look", Arguments: json.RawMessage(`{"n":2}`)},
			{ID: "call_c", Name: "listen", Arguments: json.RawMessage(`{}`)},
		}}, modeltest.Turn{Text: "all three"})
		req := p.request()
		req.Tools = []model.ToolDef{look, {Name: "listen"}}
		res, _ := p.must(m, req, stream)
		calls := res.Message.ToolCalls
		if len(calls) != 3 {
			p.Fatalf("stream %v: %d calls, want 3: %+v", stream, len(calls), calls)
		}
		req.Messages = append(req.Messages, res.Message)
		ids := map[string]bool{}
		for i, want := range []string{`{"n":1}`, `{"n":2}`, `{}`} {
			p.sameJSON(calls[i].Arguments, want)
			ids[calls[i].ID] = true
			if i == 1 {
				req.Messages = append(req.Messages, model.ToolFailure(calls[i], "no such thing"))
				continue
			}
			req.Messages = append(req.Messages, model.ToolResult(calls[i], json.RawMessage(`"ok"`)))
		}
		if len(ids) != 3 || calls[0].Name != "look" || calls[1].Name != "look" || calls[2].Name != "listen" {
			p.Errorf("stream %v: calls %+v", stream, calls)
		}
		if res, _ := p.must(m, req, stream); res.Message.Content != "all three" {
			p.Errorf("stream %v: after the results %+v", stream, res)
		}
	}
}

func (p *proof) structured() {
	const text = `{"city":"Zürich","n":9007199254740993}`
	for _, strict := range []bool{false, true} {
		stage, m := p.stage(modeltest.Turn{Text: text})
		req := p.request()
		req.Format = model.Format{Type: model.FormatJSONSchema, Name: "place", Schema: json.RawMessage(schema), Strict: strict}
		for _, stream := range []bool{false, true} {
			res, _ := p.must(m, req, stream)
			p.sameJSON(json.RawMessage(res.Message.Content), text)
		}
		for _, r := range stage.Requests() {
			p.o.Schema(p.T, r.Body)
		}
		req.Format = model.Format{Type: model.FormatJSON}
		res, _ := p.must(m, req, false)
		p.sameJSON(json.RawMessage(res.Message.Content), text)
	}
}

func wantSchema(t *testing.T, body []byte) {
	t.Helper()
	if !bytes.Contains(compact(t, body), []byte(schema)) {
		t.Errorf("the schema did not arrive: %s", body)
	}
}

func (p *proof) extended() {
	for _, stream := range []bool{false, true} {
		stage, m := p.stage(modeltest.Turn{Text: "fine"})
		req := p.request()
		req.Params.MaxTokens = 64
		req.Params.Extended = p.o.Extended
		p.must(m, req, stream)
		at := json.RawMessage(stage.Requests()[0].Body)
		for _, name := range p.o.ExtendedAt {
			at = members(p.T, at)[name]
		}
		got := members(p.T, at)
		for name, want := range members(p.T, p.o.Extended) {
			if have, ok := got[name]; !ok || !bytes.Equal(compact(p.T, have), compact(p.T, want)) {
				p.Errorf("stream %v: %q arrived as %s, want %s", stream, name, have, want)
			}
		}
	}
}

func members(t *testing.T, object json.RawMessage) (m map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal(object, &m); err != nil {
		t.Fatalf("%s is not an object: %v", object, err)
	}
	return m
}

func (p *proof) rateLimited() {
	_, m := p.stage(modeltest.Turn{Fail: &model.Error{Kind: model.ErrRateLimited, Message: "slow down", RetryAfter: 7 * time.Second}})
	p.fails(m, model.ErrRateLimited, 429, 7*time.Second)
}

func (p *proof) failures() {
	for _, c := range []struct {
		kind   model.Kind
		status int
	}{{model.ErrUnavailable, 503}, {model.ErrUnavailable, 500}, {model.ErrBadRequest, 400}, {model.ErrAuth, 401}} {
		p.Run(fmt.Sprint(c.status), func(t *testing.T) {
			sub := &proof{T: t, server: p.server, o: p.o, newModel: p.newModel}
			_, m := sub.stage(modeltest.Turn{Fail: &model.Error{Kind: c.kind, Message: "told to fail", Status: c.status}})
			sub.fails(m, c.kind, c.status, 0)
		})
	}
}

func (p *proof) fails(m model.Model, kind model.Kind, status int, after time.Duration) {
	p.Helper()
	for _, stream := range []bool{false, true} {
		res, told, err := p.generate(m, p.request(), stream)
		var e *model.Error
		if res != nil || told != "" || !errors.As(err, &e) || e.Kind != kind || e.Status != status || e.RetryAfter != after {
			p.Errorf("stream %v: response %+v after %q, error %v, want %s with status %d and retry after %s", stream, res, told, err, kind, status, after)
		}
	}
}

func (p *proof) cut() {
	_, m := p.stage(modeltest.Turn{Text: answer, Fail: &model.Error{Kind: model.ErrUnavailable}})
	res, told, err := p.generate(m, p.request(), true)
	if res != nil || !errors.Is(err, model.ErrUnavailable) {
		p.Errorf("response %+v, error %v, want %v", res, err, model.ErrUnavailable)
	}
	if told == "" || told == answer || !strings.HasPrefix(answer, told) {
		p.Errorf("streamed %q, want a part of %q", told, answer)
	}
}

func (p *proof) sameJSON(got json.RawMessage, want string) {
	p.Helper()
	if !modeltest.SameJSON(p.T, got, want) {
		p.Errorf("JSON %s, want %s", got, want)
	}
}

func compact(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		t.Fatalf("compact %q: %v", b, err)
	}
	return out.Bytes()
}
