package openai

import (
	"maps"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/envelope/pattern"
)

const maxRefusals = 6 // parameters that one call leaves out, one after the other

// What is done about a parameter that a model has refused: the notes of [model.Refusals].
const (
	leaveOut    = 1 + iota
	otherName   // max_tokens and max_completion_tokens
	withoutForm // response_format is json_object, without the schema
)

var unsupported = pattern.Of(`(?i)unsupported|not (yet |currently )?supported|(does|do)( not|n't) support|not (permitted|allowed)|extra_forbidden|unrecognized|unknown (parameter|field|argument|name)|unexpected (parameter|field|keyword)`)

// learn reports whether rep refuses a parameter that w has from the standard
// ones, and keeps it in mind. What params.extended says is the author's own.
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
		return false // it was left out, and is refused all the same
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

// named is the standard parameter of w that the report speaks of.
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
