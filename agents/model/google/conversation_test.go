package google_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

// Signed parts are sent back unchanged, each with its signature, and only to the model that signed
// them.
func TestSignaturesGoBack(t *testing.T) {
	t.Parallel()
	signed := parts("STOP", `{"text":"I look.","thoughtSignature":"dGV4dA=="},{"functionCall":{"id":"given-1","name":"one","args":{"n":1.0}},"thoughtSignature":"Zmlyc3Q="},{"functionCall":{"name":"two","args":{}}}`)
	c := &canned{answers: []string{signed, fine}}
	m := newModel(t, modeltest.Serve(t, c))
	req := &model.Request{Model: "gemini-3-pro", Messages: hi.Messages}
	res, err := m.Generate(t.Context(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	calls := res.Message.ToolCalls
	if len(calls) != 2 || calls[0].ID != "given-1" || string(calls[0].Arguments) != `{"n":1.0}` || calls[1].ID != "call_2" {
		t.Fatalf("calls %+v", calls)
	}
	req.Messages = append(slices.Clone(req.Messages), res.Message, model.ToolResult(calls[0], json.RawMessage(`1`)), model.ToolResult(calls[1], json.RawMessage(`not JSON`)))
	if err := req.Validate(); err != nil {
		t.Fatal(err)
	}
	const replies = `{"role":"user","parts":[{"functionResponse":{"id":"given-1","name":"one","response":{"output":1}}},{"functionResponse":{"name":"two","response":{"output":"not JSON"}}}]}]}`
	const want = `{"contents":[{"role":"user","parts":[{"text":"hi"}]},{"role":"model","parts":[{"text":"I look.","thoughtSignature":"dGV4dA=="},` +
		`{"functionCall":{"id":"given-1","name":"one","args":{"n":1.0}},"thoughtSignature":"Zmlyc3Q="},{"functionCall":{"name":"two","args":{}}}]},` + replies
	if _, err := m.Generate(t.Context(), req, nil); err != nil || !modeltest.SameJSON(t, c.bodies[1], want) {
		t.Errorf("error %v\n got %s\nwant %s", err, c.bodies[1], want)
	}

	// Another Gemini model gets the placeholder instead of a signature.
	req.Model = "gemini-4-flash"
	foreign := strings.NewReplacer(`,"thoughtSignature":"dGV4dA=="`, "", "Zmlyc3Q=", "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=", `"id":"given-1",`, "").Replace(want)
	if _, err := m.Generate(t.Context(), req, nil); err != nil || !modeltest.SameJSON(t, c.bodies[2], foreign) {
		t.Errorf("error %v\n got %s\nwant %s", err, c.bodies[2], foreign)
	}
	req.Model = "gemini-2.5-flash"
	if _, err := m.Generate(t.Context(), req, nil); err != nil || strings.Contains(c.bodies[3], "ignature") {
		t.Errorf("error %v, body %s", err, c.bodies[3])
	}

	// A stream signs its text with an empty part at its end.
	c = &canned{answers: []string{stream(parts("", `{"text":"a "}`), parts("", `{"text":"b"}`), parts("STOP", `{"text":"","thoughtSignature":"dGV4dA=="}`)), fine}}
	m = newModel(t, modeltest.Serve(t, c))
	res, err = m.Generate(t.Context(), hi, func(model.Delta) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	m.Generate(t.Context(), &model.Request{Model: "m", Messages: []model.Message{model.User("hi"), res.Message, model.User("more")}}, nil)
	if !strings.Contains(c.bodies[1], `{"text":"a b","thoughtSignature":"dGV4dA=="}`) {
		t.Errorf("sent back %s", c.bodies[1])
	}
}

func TestGeneratedIDsAreNewToTheConversation(t *testing.T) {
	t.Parallel()
	old := []model.ToolCall{{ID: "call_1", Name: "x", Arguments: json.RawMessage(`{}`)}, {ID: "call_3", Name: "x", Arguments: json.RawMessage(`{}`)}}
	req := &model.Request{Model: "m", Messages: []model.Message{model.User("hi"), model.Assistant("", old...), model.ToolResult(old[0], json.RawMessage(`1`)), model.ToolResult(old[1], json.RawMessage(`1`))}}
	c := &canned{answers: []string{parts("STOP", `{"functionCall":{"name":"x"}},{"functionCall":{"id":"call_1","name":"x"}},{"functionCall":{"id":"own","name":"x"}},{"functionCall":{"id":"own","name":"x"}}`)}}
	res, err := newModel(t, modeltest.Serve(t, c)).Generate(t.Context(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range res.Message.ToolCalls {
		got = append(got, c.ID)
	}
	if want := []string{"call_4", "call_5", "own", "call_6"}; !slices.Equal(got, want) {
		t.Errorf("ids %q, want %q", got, want)
	}
}

// The error texts are those of the API.
func TestRefusalsAreLeftOutAndLearnt(t *testing.T) {
	t.Parallel()
	one := 1.0
	refuse := func(message string) string {
		b, _ := json.Marshal(map[string]any{"error": map[string]any{"code": 400, "status": "INVALID_ARGUMENT", "message": message}})
		return string(b)
	}
	schema := model.Format{Type: model.FormatJSONSchema, Schema: json.RawMessage(`{"type":"object"}`)}
	for name, c := range map[string]struct {
		req      *model.Request
		message  string
		dropped  []string
		gone     string
		remember bool
	}{
		"penalties": {&model.Request{Model: "m", Messages: hi.Messages, Params: model.Params{PresencePenalty: &one, FrequencyPenalty: &one}},
			"Penalty is not enabled for models/m", []string{"frequency_penalty", "presence_penalty"}, "Penalty", true},
		"JSON beside tools": {&model.Request{Model: "m", Messages: hi.Messages, Format: schema, Tools: []model.ToolDef{{Name: "x"}}},
			"Function calling with a response mime type: 'application/json' is unsupported", []string{"response_format"}, "responseMimeType", true},
		"a schema": {&model.Request{Model: "m", Messages: hi.Messages, Format: schema},
			"Invalid value at 'generation_config.response_json_schema': too deep", []string{"response_format"}, "responseJsonSchema", false},
	} {
		srv := &canned{status: 400, answers: []string{refuse(c.message), fine}}
		m := newModel(t, modeltest.Serve(t, srv))
		res, err := m.Generate(t.Context(), c.req, nil)
		if err != nil || !slices.Equal(res.Dropped, c.dropped) || len(srv.bodies) != 2 || !strings.Contains(srv.bodies[0], c.gone) || strings.Contains(srv.bodies[1], c.gone) {
			t.Errorf("%s: response %+v, error %v, asked %q", name, res, err, srv.bodies)
			continue
		}
		if inWords := strings.Contains(srv.bodies[1], "nothing else"); inWords != (c.req.Format.Type != "") {
			t.Errorf("%s: in words %v: %s", name, inWords, srv.bodies[1])
		}
		if _, err := m.Generate(t.Context(), c.req, nil); err != nil || strings.Contains(srv.bodies[2], c.gone) == c.remember {
			t.Errorf("%s: the next request was %s, error %v", name, srv.bodies[2], err)
		}
	}
	// Signatures that another endpoint does not know.
	c := &canned{status: 400, answers: []string{parts("STOP", `{"functionCall":{"name":"x"},"thoughtSignature":"Zmlyc3Q="}`), refuse("Corrupted thought signature."), fine}}
	m := newModel(t, modeltest.Serve(t, c))
	req := &model.Request{Model: "gemini-3-pro", Messages: hi.Messages}
	res, err := m.Generate(t.Context(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Messages = append(slices.Clone(req.Messages), res.Message, model.ToolResult(res.Message.ToolCalls[0], json.RawMessage(`1`)))
	if _, err := m.Generate(t.Context(), req, nil); err != nil || len(c.bodies) != 3 || strings.Contains(c.bodies[2], "Zmlyc3Q=") {
		t.Errorf("error %v after %q", err, c.bodies)
	}
	// A parameter that the author has set is not left out.
	c = &canned{status: 400, answers: []string{refuse("Penalty is not enabled")}}
	if _, err := newModel(t, modeltest.Serve(t, c)).Generate(t.Context(), hi, nil); !errors.Is(err, model.ErrBadRequest) || len(c.bodies) != 1 {
		t.Errorf("error %v after %d requests", err, len(c.bodies))
	}
}

// The body of a redirect is not part of the answer.
func TestRedirectAtTheOriginIsFollowed(t *testing.T) {
	t.Parallel()
	api := &canned{answers: []string{parts("STOP", `{"functionCall":{"name":"x","args":{"n":9007199254740993}}}`)}}
	m := newModel(t, modeltest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1beta/") {
			w.Header().Set("Location", "/elsewhere"+r.URL.Path)
			w.WriteHeader(http.StatusPermanentRedirect)
			io.WriteString(w, "it has moved")
			return
		}
		api.ServeHTTP(w, r)
	})))
	res, err := m.Generate(t.Context(), hi, nil)
	if err != nil || string(res.Message.ToolCalls[0].Arguments) != `{"n":9007199254740993}` || api.headers[0].Get("X-Goog-Api-Key") != testKey || len(api.bodies[0]) == 0 {
		t.Errorf("response %+v, error %v, asked %q with %v", res, err, api.bodies, api.headers)
	}
}
