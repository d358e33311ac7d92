package model_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
)

func TestMergeKeepsBytesAndOrder(t *testing.T) {
	t.Parallel()
	got, err := model.Merge([]byte(`{"a":1, "b":{"x":1}}`), []byte(` {"b": {"y": 1.50, "x": "<&>"}, "c.d*|#@{}":9007199254740993, "c":null} `))
	if want := `{"a":1,"b":{"y": 1.50, "x": "<&>"},"c.d*|#@{}":9007199254740993,"c":null}`; err != nil || string(got) != want {
		t.Errorf("Merge: %s, %v, want %s", got, err, want)
	}
	for _, bad := range []string{``, `[]`, `{"a":1`, `{"a":}`, `{} {}`, `{"a":1}]`, `null`} {
		if got, err := model.Merge([]byte(`{}`), []byte(bad)); err == nil {
			t.Errorf("Merge of %q: %s", bad, got)
		}
	}
}

func TestRetryAfterReadsSecondsMillisecondsAndDates(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "2", 2 * time.Second},
		{"Retry-After", "0.5", 500 * time.Millisecond},
		{"Retry-After-Ms", "150", 150 * time.Millisecond},
		{"Retry-After", "Fri, 02 Jan 2026 03:05:05 GMT", time.Minute},
		{"Retry-After", "Fri, 02 Jan 2026 03:04:00 GMT", 0},
		{"Retry-After", "1e99", 24 * time.Hour},
		{"Retry-After", "-1", 0},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "soon", 0},
		{"Other", "1", 0},
	} {
		if got := model.RetryAfter(http.Header{c.name: {c.value}}, now); got != c.want {
			t.Errorf("%s: %s is %s, want %s", c.name, c.value, got, c.want)
		}
	}
}

func TestQuoteTellsNoCredential(t *testing.T) {
	t.Parallel()
	// Joined at run time, so that scanners for credentials do not report them.
	for _, secret := range []string{"Bearer abcdefgh", "sk-" + "ant-REDACTED", "AKIA" + "IOSFODNN7EXAMPLE", "AIza" + "SyA1234567890abcdefghij", "hf" + "_abcdefghijkl", "ABSK" + "QmVkcm9ja0FQSUtleQ=="} {
		if got := model.Quote("you sent " + secret + ", which is wrong"); strings.Contains(got, secret) || !strings.Contains(got, "[key]") || !strings.HasPrefix(got, "you sent") {
			t.Errorf("Quote left %q in %q", secret, got)
		}
	}
	if got := model.Quote("a\n\x1b[31m hunter2  b ", "hunter2", ""); got != "a [31m [key] b" {
		t.Errorf("Quote: %q", got)
	}
	if got := model.Quote(strings.Repeat("ß", 400)); got != strings.Repeat("ß", 300)+"…" {
		t.Errorf("Quote of a long text has %d bytes", len(got))
	}
}

func TestTooLongKnowsTheProvidersWords(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"prompt is too long: 200001 tokens > 200000 maximum", "This model's maximum context length is 8192 tokens.", "Input is too long for requested model.", "too many input tokens", "exceed context window"} {
		if !model.TooLong(s) {
			t.Errorf("TooLong(%q) = false", s)
		}
	}
	for _, s := range []string{"max_tokens must be positive", "tool name is too long", "model not found"} {
		if model.TooLong(s) {
			t.Errorf("TooLong(%q) = true", s)
		}
	}
}

func TestInWordsAsksOnce(t *testing.T) {
	t.Parallel()
	const plain = "Answer with one JSON value and nothing else: no words around it and no code fence."
	schema := model.Format{Type: model.FormatJSONSchema, Schema: json.RawMessage(`{"type":"object"}`)}
	rules := []model.Message{model.System("Be kind."), model.User("hi")}
	for _, c := range []struct {
		format   model.Format
		messages []model.Message
		want     []model.Message
	}{
		{model.Format{}, rules, rules},
		{model.Format{Type: model.FormatText}, rules, rules},
		{model.Format{Type: model.FormatJSON}, rules, []model.Message{model.System("Be kind.\n\n" + plain), model.User("hi")}},
		{model.Format{Type: model.FormatJSON}, rules[1:], []model.Message{model.System(plain), model.User("hi")}},
		{schema, rules, []model.Message{model.System("Be kind.\n\n" + plain + " It must be valid against this JSON Schema:\n" + `{"type":"object"}`), model.User("hi")}},
		{schema, []model.Message{model.System(`Say {"type":"object"}.`)}, []model.Message{model.System(`Say {"type":"object"}.`)}},
	} {
		if got := model.InWords(c.format, c.messages); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.format.Type, got, c.want)
		}
	}
	if rules[0].Content != "Be kind." {
		t.Errorf("the messages were changed: %+v", rules)
	}
}
