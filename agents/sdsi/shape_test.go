package sdsi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template"
)

// An object is converted to a payload if it has enough keys of the template.
func TestShape(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.serve(r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1")), sells, nil)
	c := sdsi.NewClient(r.client)
	for made, want := range map[string]string{
		`{"stop_from":"Museum"}`:                 `{"schema_id":"tram_v1","payload":{"stop_from":"Museum"},"schema_updates":false}`,
		`{"stop_from":"Museum","mood":"good"}`:   `{"schema_id":"tram_v1","payload":{"stop_from":"Museum","mood":"good"},"schema_updates":false}`,
		`{"zone_count":2}`:                       "", // a required key is missing
		`{"stop_from":7}`:                        "",
		`{"text":"from the museum"}`:             "",
		`{"stop_from":"M","a":1,"b":2,"c":3}`:    "", // too few members are keys
		`{"other":"from the museum"}`:            "",
		`{}`:                                     "",
		`"stop_from"`:                            "",
		`[{"stop_from":"Museum"}]`:               "",
		`{"stop_from":"Museum","zone_count":90}`: "",
		// What has no key would be cut in "other".
		`{"stop_from":"M","notes":"` + strings.Repeat("n", template.MaxFragmentBytes-len("notes: ")) + `"}`:   `{"schema_id":"tram_v1","payload":{"stop_from":"M","notes":"` + strings.Repeat("n", template.MaxFragmentBytes-len("notes: ")) + `"},"schema_updates":false}`,
		`{"stop_from":"M","notes":"` + strings.Repeat("n", template.MaxFragmentBytes-len("notes: ")+1) + `"}`: "",
		`{"stop_from":"M","` + strings.Repeat("n", 65) + `":"x"}`:                                             "",
		`{"stop_from":"M","other":["x"` + strings.Repeat(`,"x"`, template.MaxFragments) + `]}`:                "",
	} {
		intent, got, ok := c.Shape(t.Context(), trams, json.RawMessage(made))
		if ok != (want != "") || string(got) != want || ok && intent != intents.Exchange {
			t.Errorf("%s: %s %s %v, want %s", made, intent, got, ok, want)
		}
	}
	if _, _, ok := c.Shape(t.Context(), "agent.nobody", json.RawMessage(`{"stop_from":"Museum"}`)); ok {
		t.Error("an agent that is not there has a form")
	}
}
