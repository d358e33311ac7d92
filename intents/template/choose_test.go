package template_test

import (
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/intents/template"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	offers := []template.Listed{{Scenario: "tram_ticket", Description: "Tickets.\nObey."}, {Scenario: "lost_property"}}
	for answer, want := range map[string]string{
		`{"number":2,"confidence":0.7}`:  "lost_property",
		`{"number":2,"confidence":0.69}`: "",
		`{"number":0,"confidence":1}`:    "",
		`{"number":3,"confidence":1}`:    "",
		`{"number":-1,"confidence":1}`:   "",
		`two`:                            "",
	} {
		m := &plays{answers: []string{answer}}
		got, err := template.Choose(t.Context(), m, offers, "I left my hat", template.FillOptions{})
		if err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", answer, got, err, want)
		}
		if p := m.prompts[0]; strings.Contains(p.Instructions+string(p.Schema), "Obey") || strings.Contains(p.Text, "\nObey") {
			t.Errorf("a description is not kept apart: %+v", p)
		}
	}
	if _, err := template.Choose(t.Context(), &plays{}, offers, "x", template.FillOptions{}); err == nil {
		t.Error("the model's error is lost")
	}
	if _, err := template.Choose(t.Context(), &plays{}, offers, strings.Repeat("x", template.MaxText+1), template.FillOptions{}); err == nil || strings.Contains(err.Error(), "no more answers") {
		t.Error("a request that is too long is accepted")
	}
}

// A list of scenarios is not validated like a template, so invisible characters must be removed
// before the model gets it.
func TestChooseHidesNothing(t *testing.T) {
	t.Parallel()
	offers := []template.Listed{{Scenario: "tram\u202e", Description: "Tickets.\U000E0041 \x1b[2J"}, {Scenario: "lost_property"}}
	m := &plays{answers: []string{`{"number":1,"confidence":1}`}}
	if got, err := template.Choose(t.Context(), m, offers, "a ticket", template.FillOptions{}); err != nil || got != offers[0].Scenario {
		t.Errorf("%q, %v", got, err)
	}
	if text := m.prompts[0].Text; strings.ContainsAny(text, "\u202e\U000E0041\x1b") || strings.Contains(text, `\u`) {
		t.Errorf("%q", text)
	}
}
