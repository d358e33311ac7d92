package model_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
)

func TestPiecesComeBackInOrder(t *testing.T) {
	t.Parallel()
	a, b := model.ToolCall{ID: "a", Name: "x", Arguments: json.RawMessage(`{}`)}, model.ToolCall{ID: "b", Name: "y", Arguments: json.RawMessage(`{}`)}
	pieces := []model.Piece{{Raw: json.RawMessage(`{"thought":1.0}`)}, {Text: "größer "}, {Call: &a}, {Text: "als"}, {Raw: json.RawMessage(`{"more":"<"}`)}, {Call: &b}}
	m := model.Assistant("größer als", a, b)
	plain := []model.Piece{{Text: "größer als"}, {Call: &a}, {Call: &b}}
	m.Provider = model.PackPieces("mine", "m", pieces)
	if err := (&model.Request{Messages: []model.Message{m}}).Validate(); err != nil {
		t.Fatal(err)
	}
	if got := model.UnpackPieces("mine", "m", m); !samePieces(t, got, pieces) {
		t.Errorf("got %+v, want %+v", got, pieces)
	}
	changed, fewer, none := m, m, m
	changed.Content = "größer"
	fewer.ToolCalls = fewer.ToolCalls[:1]
	none.Provider = nil
	broken := m
	broken.Provider = json.RawMessage(`{"mine":{"model":"m","pieces":[{}]}}`)
	for name, c := range map[string]struct {
		adapter, model string
		m              model.Message
		want           []model.Piece
	}{
		"another adapter": {"yours", "m", m, plain},
		"another model":   {"mine", "n", m, plain},
		"changed text":    {"mine", "m", changed, []model.Piece{{Text: "größer"}, {Call: &a}, {Call: &b}}},
		"a call less":     {"mine", "m", fewer, []model.Piece{{Text: "größer als"}, {Call: &a}}},
		"nothing kept":    {"mine", "m", none, plain},
		"no pieces":       {"mine", "m", broken, plain},
	} {
		if got := model.UnpackPieces(c.adapter, c.model, c.m); !samePieces(t, got, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
	if got := model.PackPieces("mine", "m", plain); got != nil {
		t.Errorf("text and calls alone were packed: %s", got)
	}
	if got := model.PackPieces("mine", "m", []model.Piece{{Raw: json.RawMessage(`{`)}}); got != nil {
		t.Errorf("what is no JSON was packed: %s", got)
	}
}

func samePieces(t *testing.T, a, b []model.Piece) bool {
	t.Helper()
	text := func(p []model.Piece) (v any) {
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	return reflect.DeepEqual(text(a), text(b))
}

func TestCallsFitTheStricterProviders(t *testing.T) {
	t.Parallel()
	for id, same := range map[string]bool{"toolu_01-A": true, "functions.look:0": false, "": false, "größe": false, string(make([]byte, 65)): false} {
		got := model.PlainID(id)
		if (got == id) != same || got != model.PlainID(got) || got == "" {
			t.Errorf("PlainID(%q) = %q, want the same: %v", id, got, same)
		}
	}
	if model.PlainID("a.b") == model.PlainID("a:b") {
		t.Error("two ids became one")
	}
	for in, want := range map[string]string{`{"a":1.0}`: `{"a":1.0}`, `"no"`: `{"arguments":"no"}`, `null`: `{"arguments":null}`, `[1]`: `{"arguments":[1]}`} {
		if got := model.ObjectOf(json.RawMessage(in)); string(got) != want {
			t.Errorf("ObjectOf(%s) = %s, want %s", in, got, want)
		}
	}
}
