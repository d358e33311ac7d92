package template

import (
	"encoding/json"
	"fmt"
	"strings"

	experiment "github.com/go-json-experiment/json"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Limits of the texts that reach an agent through "other".
const (
	MaxFragments     = 20    // fragments of one payload
	MaxFragmentBytes = 1_000 // of one fragment

	maxUnknownName = 64 // bytes of the name of an unknown key in its fragment
)

// other returns the fragments of "other" and of the unknown keys, and the value of "other"
// for the handler: a string or an array, as its key_type says. cut reports whether something was
// left out.
func (c *checking) other(raw []byte) (fragments []string, value []byte, cut bool) {
	f := textsOf(raw)
	for _, m := range c.unknown {
		text := textOf(m.value)
		if m.value[0] != '"' {
			text = string(compact(m.value))
		}
		f.take(clip.Text(m.name, maxUnknownName) + ": " + text)
		cut = cut || len(m.name) > maxUnknownName
		if len(c.warnings) < maxPerKey {
			c.warnings = append(c.warnings, fmt.Sprintf("%s is no key of the template: it was moved into other", quoted(m.name)))
		}
	}
	if f.cut {
		c.warnings = append(c.warnings, fmt.Sprintf("other was cut to %d fragments of %d bytes", MaxFragments, MaxFragmentBytes))
	}
	cut = cut || f.cut
	if len(f.texts) == 0 {
		return nil, nil, cut
	}
	if !c.form.otherList {
		return f.texts, quoteJSON(strings.Join(f.texts, "; ")), cut
	}
	value, _ = experiment.Marshal(f.texts) // valid UTF-8 always
	return f.texts, value, cut
}

// WithoutTruth returns a fragment of an unknown key without its value, if that is true or
// false: "smoking" of "smoking: false". Other fragments are returned as they are.
func WithoutTruth(fragment string) string {
	name, value, found := strings.Cut(fragment, ": ")
	if found && (value == "true" || value == "false") {
		return name
	}
	return fragment
}

// OtherTexts returns the texts of a value of the key "other", a JSON string or an array of
// strings, as [Form.Check] does: cleaned, without empty ones, and bounded.
func OtherTexts(value json.RawMessage) []string { return textsOf(value).texts }

// otherTexts are the cleaned and bounded texts of "other".
type otherTexts struct {
	texts []string
	cut   bool // something was left out
}

func textsOf(raw []byte) otherTexts {
	var f otherTexts
	if len(raw) > 0 && raw[0] == '[' {
		for _, item := range itemsOf(raw) {
			f.take(textOf(item))
		}
	} else {
		f.take(textOf(raw))
	}
	return f
}

func (f *otherTexts) take(s string) {
	whole := s
	if s = visible(s); s == "" {
		return
	}
	if len(f.texts) == MaxFragments {
		f.cut = true
		return
	}
	f.cut = f.cut || len(whole) > MaxFragmentBytes
	f.texts = append(f.texts, clip.Text(s, MaxFragmentBytes))
}

// visible replaces invisible characters, line breaks and tabs by spaces, and trims the text.
func visible(s string) string {
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		if hidden(c) {
			return ' '
		}
		return c
	}, s))
}
