package openai

import (
	"maps"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/envelope/pattern"
)

const maxRefusals = 6 // how often one call is sent again without a refused parameter

// What to do about a parameter that a model has refused; these are the notes in [model.Refusals].
const (
	leaveOut    = 1 + iota
	otherName   // use max_completion_tokens instead of max_tokens, or the reverse
	withoutForm // use response_format json_object, without the schema
)

var unsupported = pattern.Of(`(?i)unsupported|not (yet |currently )?supported|(does|do)( not|n't) support|not (permitted|allowed)|extra_forbidden|unrecognized|unknown (parameter|field|argument|name)|unexpected (parameter|field|keyword)`)

// learn reports whether rep refuses a standard parameter in w, and remembers the refusal. Members
// of params.extended are never left out, because the document's author has set them.
func (m *Model) learn(name string, w *wire, rep *report) bool {
	if rep == nil || rep.status != 400 && rep.status != 422 || !unsupported.RE().MatchString(rep.code+" "+rep.typ+" "+rep.message) {
		return false
	}
	param := w.named(rep)
	if param == "" {
		return false
	}
	known := m.refusals.Of(name)[param]
	switch {
	case known != w.refused[param]:
		return true // another call has learned it since w was built
	case known == leaveOut:
		return false // it was left out, and the request is still refused
	case param == maxTokens && known == 0:
		known = otherName
	case param == responseFormat && known == 0 && w.schema:
		known = withoutForm
	default:
		known = leaveOut
	}
	m.refusals.Keep(name, param, known)
	return true
}

// named returns the standard parameter of w that the report names.
func (w *wire) named(rep *report) string {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	for member, param := range w.sent {
		if p := rep.param; p == member || strings.HasPrefix(p, member+".") {
			return param
		}
	}
	if rep.param != "" {
		return ""
	}
	// Longest first, so that max_tokens is not found in max_completion_tokens.
	byLength := slices.SortedFunc(maps.Keys(w.sent), func(a, b string) int { return len(b) - len(a) })
	words := strings.FieldsFunc(plain(rep.message), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	for _, member := range byLength {
		if slices.Contains(words, plain(member)) {
			return w.sent[member]
		}
	}
	if w.schema && slices.Contains(words, "jsonschema") {
		return responseFormat
	}
	return ""
}
