package requires

import (
	"encoding/json"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
)

// A task whose requires is null has no requirements.
func TestATaskWithoutRequirementsIsBound(t *testing.T) {
	t.Parallel()
	for _, none := range []json.RawMessage{nil, json.RawMessage(`null`), json.RawMessage(`{}`)} {
		task := envelope.New(envelope.TypeTask, "human.ada", "agent.a", "agent.a.run", nil)
		task.Requires = none
		if err := Bind(task, "acme", true); err != nil || string(task.Requires) != `{"lane":"durable","mesh":"acme"}` {
			t.Errorf("%s: bound as %s, %v", none, task.Requires, err)
		}
	}
}
