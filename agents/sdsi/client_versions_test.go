package sdsi_test

import (
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/intents/template"
)

// A schema_id is one version, which never changes (SDSI 4.1, 6.2.2). A client that has seen the
// first content refuses another one.
func TestAVersionHasOneContent(t *testing.T) {
	t.Parallel()
	send := func(change func(*template.Template)) string {
		v := tram(t, "tram_v1")
		change(v)
		raw, err := json.Marshal(template.GetResult{Template: *v, Hash: v.Hash()})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	for name, c := range map[string]struct {
		then func(*template.Template)
		ok   bool
	}{
		"the same":        {func(*template.Template) {}, true},
		"another version": {func(v *template.Template) { v.SchemaID = "tram_v2"; v.Keys[0].Description = "What you paid." }, true},
		"another language": {func(v *template.Template) {
			v.Language = "nl"
			for i := range v.Keys {
				v.Keys[i].Description = "In het Nederlands."
			}
		}, true},
		"another description": {func(v *template.Template) { v.Keys[0].Description = "The number of your card." }, false},
		"another key": {func(v *template.Template) {
			v.Keys = append(v.Keys, template.Key{Name: "card_number", Type: template.String, Description: "Your card."})
		}, false},
		"another key in another language": {func(v *template.Template) {
			v.Language = "nl"
			v.Keys = append(v.Keys, template.Key{Name: "card_number", Type: template.String, Description: "De kaart."})
		}, false},
		"another response": {func(v *template.Template) { v.ResponseSchema = json.RawMessage(`{"type":"object","maxProperties":1}`) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			var answer atomic.Value
			answer.Store(send(func(*template.Template) {}))
			r.answers(func() string { return answer.Load().(string) })
			client := sdsi.NewClient(r.client)
			if _, err := client.Template(t.Context(), trams, "tram_ticket", ""); err != nil {
				t.Fatal(err)
			}
			answer.Store(send(c.then))
			client.Forget(trams)
			_, err := client.Template(t.Context(), trams, "tram_ticket", "")
			if c.ok != (err == nil) || !c.ok && !errors.Is(err, sdsi.ErrTaken) {
				t.Errorf("a template with %s: %v", name, err)
			}
			if _, _, err := client.Get(t.Context(), trams, template.GetTask{Scenario: "tram_ticket"}); c.ok != (err == nil) {
				t.Errorf("got anew: %v", err)
			}
		})
	}
}
