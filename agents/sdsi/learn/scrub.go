package learn

import (
	"strings"
	"unicode"

	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// personal are the forms of personal data that Scrub recognizes without a model. A text is searched
// for a form only if it has a character that the form needs.
var personal = []struct {
	needs func(rune) bool
	form  *pattern.Pattern
	name  string
}{
	{isAt, pattern.Of(`[\p{L}\p{N}._%+-]+[@＠][\p{L}\p{N}.．-]+[.．]\p{L}{2,}`), "email"},
	{isPoint, pattern.Of(`(?i)\b(?:https?://|www\.)\S+`), "url"},
	{unicode.IsDigit, pattern.Of(`\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{2,4}){3,8}\b`), "iban"},
	{unicode.IsDigit, pattern.Of(`\b(?:\d{1,3}\.){3}\d{1,3}\b`), "ip"},
	{unicode.IsDigit, pattern.Of(`[+＋]?\p{Nd}(?:[\p{Zs}\p{Pd}−./()]{0,2}\p{Nd}){4,}`), "number"}, // in all scripts
	{unicode.IsDigit, pattern.Of(`\b(?:[A-Za-z]+\d|\d+[A-Za-z]+\d)[A-Za-z0-9]{3,}\b`), "code"},
}

func isAt(r rune) bool    { return r == '@' || r == '＠' }
func isPoint(r rune) bool { return r == ':' || r == '.' }

// Scrub replaces addresses, long numbers, codes and links by a word such as "[email]". It
// implements pii_handling "detect" and "anonymize" of AAIF. It does not recognize names; package
// evolve does not show the words of a single client to others.
func Scrub(text string) (clean string, keep bool) {
	for _, p := range personal {
		if strings.ContainsFunc(text, p.needs) {
			text = p.form.RE().ReplaceAllString(text, "["+p.name+"]")
		}
	}
	return strings.TrimSpace(text), true
}

// Reject drops a text in which Scrub finds something. It implements pii_handling "reject".
func Reject(text string) (clean string, keep bool) {
	clean, _ = Scrub(text)
	return clean, clean == strings.TrimSpace(text)
}

// Keep returns texts unchanged. It implements pii_handling "none".
func Keep(text string) (clean string, keep bool) { return text, true }
