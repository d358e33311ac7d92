package mesh

import (
	"encoding/json"
	"testing"
)

func TestMembersAreEncodedAsJSONEncodesThem(t *testing.T) {
	for _, members := range []map[string]json.RawMessage{
		{},
		{"tree": json.RawMessage(`{"depth":1}`)},
		{"b": json.RawMessage(`[1,2]`), `a "quoted" name`: json.RawMessage(`"x"`), "c": nil},
	} {
		want, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		if got := objectOf(members); string(got) != string(want) {
			t.Errorf("got %s, want %s", got, want)
		}
		object := objectOf(members)
		before := string(object)
		more := moreMember(object, "timeout_ms", []byte("7"))
		var read map[string]json.RawMessage
		if err := json.Unmarshal(more, &read); err != nil || len(read) != len(members)+1 || string(read["timeout_ms"]) != "7" {
			t.Errorf("one more member: %s, %v", more, err)
		}
		if string(object) != before {
			t.Errorf("the object was changed: %s", object)
		}
	}
}

func TestTheTreeOfAHopIsReadOnceAndKeepsItsBounds(t *testing.T) {
	got, err := readTree(json.RawMessage(`{"root":"r","depth":2,"max_depth":3,"max_tasks":4,"max_iterations":5,"tokens":6,"usd":7}`))
	if err != nil {
		t.Fatal(err)
	}
	if got.Root != "r" || got.Depth != 2 || got.MaxDepth != 3 || got.MaxTasks != 4 || got.MaxIterations != 5 || got.Tokens != 6 || got.USD == 0 {
		t.Errorf("got %+v", got)
	}
	for _, bad := range []string{`{"max_depth":0}`, `{"max_tasks":0}`, `{"max_iterations":0}`, `{"tokens":0}`, `{"usd":0}`, `{"max_depth":-1}`, `{"usd":-1}`, `7`, `{"depth":"x"}`} {
		if tree, err := readTree(json.RawMessage(bad)); err == nil {
			t.Errorf("%s: accepted as %+v", bad, tree)
		}
	}
	for _, none := range []json.RawMessage{nil, json.RawMessage(`null`)} {
		if tree, err := readTree(none); tree != nil || err != nil {
			t.Errorf("%s: got %+v, %v", none, tree, err)
		}
	}
}
