package learn

import (
	"strings"

	"github.com/aeemesh/aeemesh/envelope/pattern"
)

const digits = "0123456789"

// personal are the forms of personal data that are recognized without a model. Each
// needs one of some characters: most texts have none of them.
var personal = []struct {
	needs string
	form  *pattern.Pattern
	name  string
}{
	{"@", pattern.Of(`[\p{L}\p{N}._%+-]+@[\p{L}\p{N}.-]+\.\p{L}{2,}`), "email"},
	{":.", pattern.Of(`(?i)\b(?:https?://|www\.)\S+`), "url"},
	{digits, pattern.Of(`\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{2,4}){3,8}\b`), "iban"},
	{digits, pattern.Of(`\b(?:\d{1,3}\.){3}\d{1,3}\b`), "ip"},
	{digits, pattern.Of(`\+?\d(?:[ ./()-]{0,2}\d){4,}`), "number"},
	{digits, pattern.Of(`\b(?:[A-Za-z]+\d|\d+[A-Za-z]+\d)[A-Za-z0-9]{3,}\b`), "code"},
}

// Scrub puts a word such as "[email]" in the place of addresses, long numbers, codes and
// links: pii_handling "detect" and "anonymize" of AAIF. Names are not recognized;
// package evolve keeps words of only one client from others.
func Scrub(text string) (clean string, keep bool) {
	for _, p := range personal {
		if strings.ContainsAny(text, p.needs) {
			text = p.form.RE().ReplaceAllString(text, "["+p.name+"]")
		}
	}
	return strings.TrimSpace(text), true
}

// Reject keeps nothing of a text in which Scrub finds something: pii_handling "reject".
func Reject(text string) (clean string, keep bool) {
	clean, _ = Scrub(text)
	return clean, clean == strings.TrimSpace(text)
}

// Keep leaves texts as they are: pii_handling "none".
func Keep(text string) (clean string, keep bool) { return text, true }
