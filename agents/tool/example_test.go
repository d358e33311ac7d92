package tool_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/aeemesh/aeemesh/agents/tool"
)

// A Go function becomes a tool, and a guard validates its arguments against the schema.
func Example() {
	add := tool.Func(tool.Definition{
		Name:        "add",
		Description: "Adds two numbers.",
		Parameters:  json.RawMessage(`{"type":"object","required":["a","b"],"properties":{"a":{"type":"integer"},"b":{"type":"integer"}}}`),
	}, func(_ context.Context, in struct{ A, B int }) (int, error) {
		return in.A + in.B, nil
	})
	var registry tool.Registry
	if err := registry.Add(add); err != nil {
		fmt.Println(err)
		return
	}
	found, err := registry.Lookup("add")
	if err != nil {
		fmt.Println(err)
		return
	}
	guarded, err := tool.Guard(found, tool.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, args := range []string{`{"a": 1, "b": 2}`, `{"a": "one", "b": 2}`} {
		result, err := guarded.Call(context.Background(), json.RawMessage(args))
		fmt.Println(string(result), err)
	}
	// Output:
	// 3 <nil>
	//  tool add: invalid arguments: document does not fit its schema: /a: must be integer, not string (type)
}
