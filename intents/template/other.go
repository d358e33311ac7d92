package template

import (
	"fmt"
	"strings"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Bounds of what reaches an agent through "other".
const (
	MaxFragments     = 20    // fragments of one payload
	MaxFragmentBytes = 1_000 // of one fragment
)

// other returns the fragments of "other" and of the unknown keys, and the value of "other"
// for the handler: a string or an array, as its key_type says.
func (c *checking) other(raw []byte) (fragments []string, value []byte) {
	cut := false
	take := func(s string) {
		whole := s
		if s = visible(s); s == "" {
			return
		}
		if len(fragments) == MaxFragments {
			cut = true
			return
		}
		cut = cut || len(whole) > MaxFragmentBytes
		fragments = append(fragments, clip.Text(s, MaxFragmentBytes))
	}
	if len(raw) > 0 && raw[0] == '[' {
		for _, item := range itemsOf(raw) {
			take(textOf(item))
		}
	} else {
		take(textOf(raw))
	}
	for _, m := range c.unknown {
		text := textOf(m.value)
		if m.value[0] != '"' {
			text = string(compact(m.value))
		}
		take(clip.Text(m.name, 64) + ": " + text)
		if len(c.warnings) < maxPerKey {
			c.warnings = append(c.warnings, fmt.Sprintf("%s is no key of the template: it was moved into other", quoted(m.name)))
		}
	}
	if cut {
		c.warnings = append(c.warnings, fmt.Sprintf("other was cut to %d fragments of %d bytes", MaxFragments, MaxFragmentBytes))
	}
	if len(fragments) == 0 {
		return nil, nil
	}
	if !c.form.otherList {
		return fragments, quoteJSON(strings.Join(fragments, "; "))
	}
	value = []byte{'['}
	for i, s := range fragments {
		if i > 0 {
			value = append(value, ',')
		}
		value = append(value, quoteJSON(s)...)
	}
	return fragments, append(value, ']')
}

// visible replaces the characters that readers do not see by spaces, line breaks and tabs
// too, and trims.
func visible(s string) string {
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		if hidden(c) {
			return ' '
		}
		return c
	}, s))
}
