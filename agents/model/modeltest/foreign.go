package modeltest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
)

// testForeign tests a conversation that began with another provider or on
// another platform: ids, arguments and provider data have foreign forms.
func testForeign(t *testing.T, newModel NewFunc) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) {
			t.Parallel()
			m := newModel(t, Turn{Text: "not asked for"}, Turn{Text: "taken over"}, Turn{Text: "and done"})
			odd := model.ToolCall{ID: "functions.look:0", Name: "look", Arguments: raw(`"{\"pa"`)}
			twin := model.ToolCall{ID: "functions.look:1", Name: "look", Arguments: raw(`{"n":9007199254740993}`)}
			turn := model.Assistant("let me see", odd, twin)
			turn.Provider = raw(`{"elsewhere":{"pieces":[{"raw":{"thought":"hm","signature":"x"}}]},"anthropic":[],"bedrock":"","openai":1,"google":null}`)
			req := request(model.User("look at it"), turn, model.ToolFailure(odd, "the arguments are not an object"), model.ToolResult(twin, raw(`{"ok":true}`)), model.User("go on"))
			req.Tools = []model.ToolDef{{Name: "look", Parameters: raw(`{"type":"object"}`)}}
			res, pieces := mustGenerate(t, m, req, stream)
			if res.Message.Content != "taken over" || stream && strings.Join(pieces, "") != "taken over" {
				t.Errorf("response %+v after %q", res, pieces)
			}
			req.Messages = append(req.Messages, res.Message, model.User("and then?"))
			if res, _ := mustGenerate(t, m, req, stream); res.Message.Content != "and done" {
				t.Errorf("response %+v", res)
			}
		})
	}
}
