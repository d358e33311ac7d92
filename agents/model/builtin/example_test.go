package builtin_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/builtin"
)

// A script of two turns: one that calls a tool, and one that answers with what
// the tool returned.
func Example() {
	m := builtin.New()
	req := &model.Request{
		Model:    builtin.Script,
		Messages: []model.Message{model.User(`{"city": "Oslo"}`)},
		Params: model.Params{Extended: json.RawMessage(`{"script": [
			{"call": [{"name": "weather", "arguments": {"place": "${input.city}"}}]},
			{"json": {"place": "${input.city}", "celsius": "${tools.weather.celsius}"}}
		]}`)},
	}
	res, err := m.Generate(context.Background(), req, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	call := res.Message.ToolCalls[0]
	fmt.Println(res.Finish, call.Name, string(call.Arguments))

	req.Messages = append(req.Messages, res.Message, model.ToolResult(call, json.RawMessage(`{"celsius": -4.5}`)))
	res, err = m.Generate(context.Background(), req, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Finish, res.Message.Content)
	// Output:
	// tool_calls weather {"place":"Oslo"}
	// stop {"place":"Oslo","celsius":-4.5}
}
