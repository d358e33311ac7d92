package openai_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

var closed = json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`)

func TestStructuredOutputOfEachProvider(t *testing.T) {
	t.Parallel()
	open := json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}}}`)
	native := func(schema json.RawMessage, strict string) string {
		return `{"type":"json_schema","json_schema":{"name":"output","schema":` + string(schema) + strict + `}}`
	}
	const object = `{"type":"json_object"}`
	for _, c := range []struct {
		provider string
		format   model.Format
		tools    bool
		want     string
		dropped  []string
	}{
		{"azure_openai", model.Format{Type: model.FormatJSONSchema, Schema: closed}, false, native(closed, `,"strict":true`), nil},
		{"azure_openai", model.Format{Type: model.FormatJSONSchema, Schema: open}, true, native(open, ""), nil},
		{"mistral", model.Format{Type: model.FormatJSONSchema, Schema: closed}, true, native(closed, `,"strict":true`), nil},
		{"ollama", model.Format{Type: model.FormatJSONSchema, Schema: closed}, false, native(closed, ""), nil},
		{"ollama", model.Format{Type: model.FormatJSONSchema, Schema: open, Strict: true}, false, native(open, `,"strict":true`), nil},
		{"deepseek", model.Format{Type: model.FormatJSONSchema, Schema: closed}, false, object, []string{"response_format"}},
		{"deepseek", model.Format{Type: model.FormatJSON}, false, object, nil},
		{"groq", model.Format{Type: model.FormatJSONSchema, Schema: closed}, false, native(closed, ""), nil},
		{"groq", model.Format{Type: model.FormatJSONSchema, Schema: closed}, true, "", []string{"response_format"}},
		{"cohere", model.Format{Type: model.FormatJSON}, true, "", []string{"response_format"}},
		{"custom", model.Format{Type: model.FormatText}, true, "", nil},
	} {
		srv := &canned{body: fine}
		req := &model.Request{Model: "m", Messages: hi.Messages, Format: c.format}
		if c.tools {
			req.Tools = []model.ToolDef{{Name: "look"}}
		}
		var told string
		res, err := as(t, c.provider, modeltest.Serve(t, srv)).Generate(t.Context(), req, func(d model.Delta) error { told += d.Text; return nil })
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			ResponseFormat json.RawMessage `json:"response_format"`
			Stream         bool
		}
		if err := json.Unmarshal([]byte(srv.bodies[0]), &got); err != nil {
			t.Fatal(err)
		}
		same := string(got.ResponseFormat) == c.want || c.want != "" && got.ResponseFormat != nil && modeltest.SameJSON(t, string(got.ResponseFormat), c.want)
		if !same || !reflect.DeepEqual(res.Dropped, c.dropped) {
			t.Errorf("%s: response_format %s, dropped %q, want %s and %q", c.provider, got.ResponseFormat, res.Dropped, c.want, c.dropped)
		}
		if inWords := strings.Contains(srv.bodies[0], "nothing else"); inWords != (len(c.dropped) > 0) {
			t.Errorf("%s: in words %v: %s", c.provider, inWords, srv.bodies[0])
		}
		if whole := c.provider == "groq" && c.want != ""; got.Stream == whole || told != "ok" {
			t.Errorf("%s: stream %v, told %q", c.provider, got.Stream, told)
		}
	}
}

// If a model refuses schemas, JSON mode is used; if it refuses that, too, only the prompt asks for
// JSON.
func TestStructuredOutputThatIsRefused(t *testing.T) {
	t.Parallel()
	answer := `{"error":{"message":"This model does not support response format json_schema.","type":"invalid_request_error"}}`
	srv := &refusesFormat{words: map[string]string{"json_schema": answer}}
	req := &model.Request{Model: "m", Messages: hi.Messages, Format: model.Format{Type: model.FormatJSONSchema, Schema: closed}}
	res, err := as(t, "groq", modeltest.Serve(t, srv)).Generate(t.Context(), req, nil)
	if err != nil || !slices.Equal(res.Dropped, []string{"response_format"}) || !slices.Equal(srv.asked, []string{"json_schema", "json_object"}) {
		t.Errorf("asked %q, response %+v, error %v", srv.asked, res, err)
	}
	srv = &refusesFormat{words: map[string]string{"json_schema": answer, "json_object": `{"error":"response_format is not supported"}`}}
	res, err = as(t, "custom", modeltest.Serve(t, srv)).Generate(t.Context(), req, nil)
	if err != nil || !slices.Equal(res.Dropped, []string{"response_format"}) || !slices.Equal(srv.asked, []string{"json_schema", "json_object", ""}) {
		t.Errorf("asked %q, response %+v, error %v", srv.asked, res, err)
	}
}

type refusesFormat struct {
	words map[string]string
	asked []string
}
