package aaif

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// maxEntityName bounds a name, so that an entity id stays well below the
// maximum length of a NATS subject.
const maxEntityName = 64

// EntityName returns the entity id of an agent: "agent." and its name in lower
// snake case. "Invoice Chaser" is agent.invoice_chaser.
//
// Words end at any character but a letter or a digit, and before a capital that
// follows a small letter or starts a new word ("HTTPServer" is http_server). A
// digit belongs to the word before it ("GPT4 Helper" is gpt4_helper).
// Apostrophes and accents are removed ("Bob's" is bobs, "Café" is cafe). The
// result is ASCII, which every tool accepts in a subject. A name in another
// script, or without any letter or digit, is an error: the operator must then
// set the entity (--as).
func EntityName(name string) (string, error) {
	var b strings.Builder
	runes := []rune(norm.NFKD.String(name))
	runes = deleteMarks(runes)
	gap := false // a word has ended
	for i, r := range runes {
		switch {
		case r == '\'' || r == '’' || r == 'ʼ':
			continue
		case !isLetter(r) && !isDigit(r):
			if unicode.IsLetter(r) || unicode.IsDigit(r) {
				if s, ok := spelled[unicode.ToLower(r)]; ok {
					gap = startWord(&b, gap)
					b.WriteString(s)
					continue
				}
				return "", fmt.Errorf("agent name %q: no entity id can be made of %q (name the entity yourself, as in worker --as agent.helper)", clip.Text(name, 60), r)
			}
			gap = true
			continue
		case isUpper(r) && i > 0 && newWord(runes, i):
			gap = true
		}
		gap = startWord(&b, gap)
		b.WriteRune(unicode.ToLower(r))
	}
	switch id := b.String(); {
	case id == "":
		return "", fmt.Errorf("agent name %q: no letter or digit to make an entity id of (name the entity yourself, as in worker --as agent.helper)", clip.Text(name, 60))
	case len(id) > maxEntityName:
		return "", fmt.Errorf("agent name %q: the entity id would be longer than %d characters (shorten the name, or name the entity yourself, as in worker --as agent.helper)", clip.Text(name, 60), maxEntityName)
	default:
		return "agent." + id, nil
	}
}

// spelled are the Latin letters that decomposition does not split into a base
// letter and an accent.
var spelled = map[rune]string{
	'ß': "ss", 'æ': "ae", 'œ': "oe", 'ø': "o", 'đ': "d", 'ð': "d", 'þ': "th", 'ł': "l", 'ı': "i", 'ħ': "h",
}

// startWord writes an underscore if a gap between words is pending.
func startWord(b *strings.Builder, gap bool) bool {
	if gap && b.Len() > 0 {
		b.WriteByte('_')
	}
	return false
}

// newWord reports whether the capital at i starts a word: after a small letter
// or a digit, or before a small letter at the end of a run of capitals.
func newWord(runes []rune, i int) bool {
	before := runes[i-1]
	if unicode.IsLower(before) || isDigit(before) {
		return true
	}
	return isUpper(before) && i+1 < len(runes) && unicode.IsLower(runes[i+1])
}

func isDigit(r rune) bool { return r >= '0' && r <= '9' }
func isUpper(r rune) bool { return r >= 'A' && r <= 'Z' }

// deleteMarks removes the accents that decomposition has split off.
func deleteMarks(runes []rune) []rune {
	kept := runes[:0]
	for _, r := range runes {
		if !unicode.Is(unicode.Mn, r) {
			kept = append(kept, r)
		}
	}
	return kept
}
