package template_test

import (
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/intents/template"
)

// SDSI 4.1: multilingual annotations for clients of other languages.
func TestInPicksTheBestLanguage(t *testing.T) {
	t.Parallel()
	s, err := template.Parse([]byte(`{"schema_id": "stay_v1", "scenario": "hotel stay", "language": "en", "keys": [
		{"key_name": "city", "key_type": "string", "required": true, "semantic_description": "The city.",
		 "semantic_descriptions": {"de": "Die Stadt.", "pt-BR": "A cidade.", "zh-Hant": "城市。"}},
		{"key_name": "nights", "key_type": "integer", "required": true, "semantic_description": "How many nights.",
		 "semantic_descriptions": {"de": "Wie viele Nächte.", "de-AT": "Wie viele Nächte halt."}},
		{"key_name": "floor", "key_type": "integer", "required": false, "semantic_description": "The floor."}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ preferred, tag, city, nights string }{
		{"", "en", "The city.", "How many nights."},
		{"en-US", "en", "The city.", "How many nights."},
		{"de", "de", "Die Stadt.", "Wie viele Nächte."},
		{"de-CH", "de", "Die Stadt.", "Wie viele Nächte."},
		{"de-AT", "de-AT", "Die Stadt.", "Wie viele Nächte halt."},
		{"pt", "pt-BR", "A cidade.", "How many nights."},
		{"zh-TW", "zh-Hant", "城市。", "How many nights."},
		{"DE", "de", "Die Stadt.", "Wie viele Nächte."},
		{"fr, de;q=0.8, en;q=0.5", "de", "Die Stadt.", "Wie viele Nächte."},
		{"fr", "en", "The city.", "How many nights."},
		{"!!", "en", "The city.", "How many nights."},
		{strings.Repeat("de-", 1000), "en", "The city.", "How many nights."},
	} {
		got, tag := s.In(tt.preferred)
		if tag != tt.tag || got.Language != tt.tag || got.Keys[0].Description != tt.city || got.Keys[1].Description != tt.nights || got.Keys[2].Description != "The floor." {
			t.Errorf("In(%.20q): %s, %q, %q", tt.preferred, tag, got.Keys[0].Description, got.Keys[1].Description)
		}
		for _, k := range got.Keys {
			if k.Descriptions != nil {
				t.Errorf("In(%.20q): %s has several descriptions", tt.preferred, k.Name)
			}
		}
		if err := got.Validate(); err != nil {
			t.Error(err)
		}
	}
	if len(s.Keys[0].Descriptions) != 3 {
		t.Error("In has changed its template")
	}
	s.Language = ""
	if _, tag := s.In("fr"); tag != "" {
		t.Errorf("a template of no known language is %q", tag)
	}
	if got, tag := s.In("de"); tag != "de" || got.Keys[0].Description != "Die Stadt." {
		t.Errorf("%q", tag)
	}
}
