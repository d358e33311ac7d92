package bounds

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestTheTreeOfAHopIsReadOnceAndKeepsItsBounds(t *testing.T) {
	got, err := ReadTree(json.RawMessage(`{"root":"r","depth":2,"max_depth":3,"max_tasks":4,"max_iterations":5,"tokens":6,"usd":7}`))
	if err != nil {
		t.Fatal(err)
	}
	if got.Root != "r" || got.Depth != 2 || got.MaxDepth != 3 || got.MaxTasks != 4 || got.MaxIterations != 5 || got.Tokens != 6 || got.USD == 0 {
		t.Errorf("got %+v", got)
	}
	const tooLow, mistyped = ": a bound must be greater than 0", " is not of the right type"
	for bad, want := range map[string]string{
		`{"max_depth":0}`: "requires.tree.max_depth" + tooLow, `{"max_tasks":0}`: "requires.tree.max_tasks" + tooLow, `{"max_iterations":0}`: "requires.tree.max_iterations" + tooLow,
		`{"tokens":0}`: "requires.tree.tokens" + tooLow, `{"usd":0}`: "requires.tree.usd" + tooLow, `{"max_depth":-1}`: "requires.tree.max_depth" + tooLow, `{"usd":-1}`: "requires.tree.usd" + tooLow,
		`7`: "it must be an object", `{"depth":"x"}`: "requires.tree.depth" + mistyped, `{"usd":"1"}`: "requires.tree.usd" + mistyped, `{"depth":-1}`: "is not valid",
	} {
		if tree, err := ReadTree(json.RawMessage(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", bad, tree, err)
		}
	}
	if _, err := ReadTree(json.RawMessage(`{"max_depth":2.5}`)); err == nil || strings.Contains(err.Error(), "greater than 0") {
		t.Errorf("half a hop: %v", err)
	}
	if tree, err := ReadTree(json.RawMessage(`{"max_depth":3,"MAX_DEPTH":0,"Depth":2}`)); err != nil || tree.MaxDepth != 3 || tree.Depth != 0 {
		t.Errorf("names in another case were taken for bounds: %+v, %v", tree, err)
	}
	for _, none := range []json.RawMessage{nil, json.RawMessage(`null`)} {
		if tree, err := ReadTree(none); tree != nil || err != nil {
			t.Errorf("%s: got %+v, %v", none, tree, err)
		}
	}
}
