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

func TestNamesOfMembersAreReadLetterByLetter(t *testing.T) {
	t.Parallel()
	var v struct {
		ID   string          `json:"id"`
		Data json.RawMessage `json:"data"`
	}
	if err := ReadJSON(json.RawMessage(`{"id":"a","ID":"b","Id":"c","data":[1],"unknown":1}`), &v); err != nil || v.ID != "a" || string(v.Data) != "[1]" {
		t.Errorf("%+v, %v", v, err)
	}
	if err := ReadJSON(json.RawMessage(`{"id":7}`), &v); err == nil {
		t.Error("a number was taken for a text")
	}
}

func TestPlainTextIsTheTextAloneIfThereIsNothingElse(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"text":"a"}`: `a`, `{"text":"a","usage":{}}`: `a`, `{"text":"a","schema_update_suggestion":{}}`: `a`, `{"text":"a","n":1}`: `{"text":"a","n":1}`, `{"usage":{}}`: `{"usage":{}}`,
		`{"text":1}`: `{"text":1}`, `[]`: `[]`,
	} {
		if got := PlainText(json.RawMessage(payload)); string(got) != want {
			t.Errorf("%s: %s, want %s", payload, got, want)
		}
	}
}
