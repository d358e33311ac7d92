package agents_test

import (
	"fmt"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/envelope"
)

// A mistake in a script is shown to the user who runs it. An error that the
// script plays is a provider's, whose words stay here.
func TestASenderIsToldWhatIsWrongWithTheScript(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, c := range []struct{ script, want string }{
		{`{"say": "<${input.nope}>"}`, `the offline model cannot play the document's script: script turn 1: say: ${input.nope}: there is no member "nope"`},
		{`{"say": "on", "call": [{"name": "dream"}]}`, `the offline model cannot play the document's script: script: it ends after turn 1, and the conversation asks for one more`},
		{`{"error": {"kind": "bad_request", "message": "words of a provider"}}`, `the model's provider refused the request`},
	} {
		entity := fmt.Sprintf("agent.player%d", i)
		w.host(newAgent(t, definition(t, `{"sc_standard":"SC-006","agent":{"name": "Player", "goal": "Play.", "model": {"provider": "custom", "provider_id": "builtin", "preferred": "script",
			"params": {"extended": {"script": [`+c.script+`]}}}}}`), agents.Options{As: entity}))
		got := w.send(entity, `{"path":"main.go"}`, sending{})
		if got.err == nil || got.err.Code != envelope.CodeModel || got.err.Message != c.want || got.err.Retryable {
			t.Errorf("%s:\n got %v\nwant %s", c.script, got.err, c.want)
		}
	}
}
