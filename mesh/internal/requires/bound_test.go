package requires

import (
	"encoding/json"
	"strings"
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

// A task is bound once: it is not sent to another mesh or lane than it names, and a name that is none
// is refused on both sides.
func TestATaskForElsewhereIsNotBound(t *testing.T) {
	t.Parallel()
	for requires, ok := range map[string]bool{
		`{"mesh":"acme"}`: true, `{"mesh":"other"}`: false, `{"mesh":""}`: false, `{"mesh":7}`: false,
		`{"lane":"durable"}`: true, `{"lane":"live"}`: false, `{"lane":""}`: false, `{"lane":"both"}`: false,
	} {
		task := envelope.New(envelope.TypeTask, "human.ada", "agent.a", "agent.a.run", nil)
		task.Requires = json.RawMessage(requires)
		if err := Bind(task, "acme", true); (err == nil) != ok {
			t.Errorf("%s: %v", requires, err)
		}
	}
	for _, raw := range []string{`""`, `7`, `{}`} {
		if err := ForMesh(json.RawMessage(raw), "", false); err == nil {
			t.Errorf("mesh %s is accepted", raw)
		}
	}
	for _, raw := range []string{`""`, `"both"`, `7`} {
		for _, durable := range []bool{false, true} {
			if err := ForLane(json.RawMessage(raw), durable, false, true); err == nil {
				t.Errorf("lane %s is accepted, durable %v", raw, durable)
			}
		}
	}
}

// Most requires contain no text, and are not searched. Text in a list is text.
func TestACredentialIsFoundWhereverItStands(t *testing.T) {
	t.Parallel()
	key := "ghp_" + strings.Repeat("x1Y2z3", 6) // made up
	for _, requires := range []string{`{"x":"` + key + `"}`, `{"x": ["` + key + `"]}`, "{\"x\":\n[[\"" + key + `"]]}`, `{"x":{"y":[1,"` + key + `"]}}`} {
		if err := SecretIn(json.RawMessage(requires)); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", requires, err)
		}
	}
}
