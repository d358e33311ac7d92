package wire

import (
	"encoding/json"
	"testing"
)

func TestPayloadsGetTheirNumberInFront(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{}`: `{"seq":7}`, ` {"text":"a"}`: `{"seq":7,"text":"a"}`, `{"seq":1}`: `{"seq":7}`, `{"seq":1,"text":"a"}`: `{"seq":7,"text":"a"}`,
		`[]`: ``, `null`: ``, `{`: ``,
	} {
		got, err := WithSeq(json.RawMessage(payload), 7)
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %s, %v", payload, got, err)
		}
	}
}

func TestPlainTextIsTheTextAloneIfThereIsNothingElse(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"text":"a"}`: `a`, `{"text":"a","usage":{}}`: `a`, `{"text":"a","n":1}`: `{"text":"a","n":1}`, `{"usage":{}}`: `{"usage":{}}`,
		`{"text":1}`: `{"text":1}`, `[]`: `[]`,
	} {
		if got := PlainText(json.RawMessage(payload)); string(got) != want {
			t.Errorf("%s: %s, want %s", payload, got, want)
		}
	}
}
