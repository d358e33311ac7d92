package modeltest_test

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

func TestFakeConforms(t *testing.T) {
	t.Parallel()
	modeltest.Run(t, func(_ *testing.T, turns ...modeltest.Turn) model.Model { return modeltest.New(turns...) })
}

func TestFakeRecordsCopies(t *testing.T) {
	t.Parallel()
	f := modeltest.New(modeltest.Turn{Text: "ok"})
	seed, temp := int64(1), 0.5
	req := &model.Request{
		Model:    "m",
		Messages: []model.Message{model.User("hi")},
		Tools:    []model.ToolDef{{Name: "t", Parameters: json.RawMessage(`{}`)}},
		Params:   model.Params{Seed: &seed, Temperature: &temp, Extended: json.RawMessage(`{}`)},
	}
	want := modeltest.Clone(req)
	if _, err := f.Generate(context.Background(), req, nil); err != nil {
		t.Fatal(err)
	}
	seed, temp = 2, 1
	req.Messages[0].Content = "changed"
	req.Tools[0].Parameters[0] = '['
	if got := f.Requests(); len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("recorded %+v, want %+v", got, want)
	}
}

func TestWordsConcatenate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":         nil,
		"a":        {"a"},
		"a b ":     {"a ", "b "},
		" a\nb  c": {" ", "a\nb ", " ", "c"},
	} {
		if got := modeltest.Words(text); !reflect.DeepEqual(got, want) {
			t.Errorf("Words(%q) = %q, want %q", text, got, want)
		}
	}
}
