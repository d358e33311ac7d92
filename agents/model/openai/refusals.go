package openai

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

const (
	maxRefusals = 6   // parameters that one call leaves out, one after the other
	maxModels   = 256 // models whose refusals are kept in mind
)

// What is done about a parameter that a model has refused.
const (
	leaveOut    = "leave out"
	otherName   = "under its other name" // max_tokens and max_completion_tokens
	withoutForm = "json_object"          // response_format without the schema
)

// refusals are what the endpoint's models have refused: which parameters a
// model takes changes with its version and with other parameters, and no list
// of models would stay true.
type refusals struct {
	mu sync.Mutex
	of map[string]map[string]string // model → standard parameter → what is done
}

func (r *refusals) get(name string) map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.of[name])
}

var unsupported = regexp.MustCompile(`(?i)unsupported|not (yet |currently )?supported|(does|do)( not|n't) support|not (permitted|allowed)|extra_forbidden|unrecognized|unknown (parameter|field|argument|name)|unexpected (parameter|field|keyword)`)

// learn reports whether rep refuses a parameter that w has from the standard
// ones, and keeps it in mind. What params.extended says is the author's own.
func (r *refusals) learn(name string, w *wire, rep *report) bool {
	if rep == nil || rep.status != 400 && rep.status != 422 || !unsupported.MatchString(rep.code+" "+rep.typ+" "+rep.message) {
		return false
	}
	param := w.named(rep)
	if param == "" {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil || len(r.of) >= maxModels {
		r.of = make(map[string]map[string]string)
	}
	known := r.of[name]
	if known == nil {
		known = make(map[string]string)
		r.of[name] = known
	}
	switch {
	case known[param] != w.refused[param]:
		// Another call has learned it since w was built.
	case known[param] == leaveOut:
		return false // it was left out, and is refused all the same
	case param == maxTokens && known[param] == "":
		known[param] = otherName
	case param == responseFormat && known[param] == "" && w.schema:
		known[param] = withoutForm
	default:
		known[param] = leaveOut
	}
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
