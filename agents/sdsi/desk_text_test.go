package sdsi_test

import (
	"encoding/json"
	"testing"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/intents"
)

// The draft's forms are recognized everywhere: in a task of any intent, in a task with a text, and
// in plain text.
func TestTheDraftsFormsAsText(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.serve(r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1")), sells, nil)
	const order, bad = `{"schema_id":"tram_v1","payload":{"stop_from":"Museum"}}`, `{"schema_id":"tram_v1","payload":{}}`
	asText := func(s string) string {
		raw, err := json.Marshal(map[string]string{"text": s})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	contains(t, "a payload", r.ask("any.intent", order), `"ticket":"T1"`, `"stop_from":"Museum"`)
	contains(t, "a text", r.ask(intents.AgentAsk, asText(order)), `"ticket":"T1"`, `"stop_from":"Museum"`)
	contains(t, "a text that does not fit", r.ask(intents.AgentAsk, asText(bad)), "E_INPUT_SCHEMA", "stop_from is missing")
	for text, want := range map[string]string{order: `"ticket":"T1"`, bad: "stop_from is missing"} {
		got, err := r.client.Ask(t.Context(), trams, text)
		if err != nil {
			got = err.Error()
		}
		contains(t, "plain text", got, want)
	}
}
