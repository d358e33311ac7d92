package secret

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// MinScrubbed is the length of the shortest value that a [Redactor] takes out, in
// bytes. Shorter ones are words of every text; they are no secrets either.
const MinScrubbed = 4

// MaxKnown is how many values a [Redactor] knows. Of more it forgets those that
// it has not been told of for longest.
const MaxKnown = 4096

// Redactor takes secrets that it knows out of texts: as they are, in base64 and
// hex, and escaped for URLs and JSON. The zero Redactor knows none; it is safe
// for concurrent use, and so is a nil one, which does nothing.
type Redactor struct {
	mu    sync.Mutex
	known []Secret // the latest at the end
	repl  *strings.Replacer
}

// Add makes secrets known. Of one that has parts which are secrets on their own,
// such as user:password, add these too.
func (r *Redactor) Add(secrets ...Secret) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range secrets {
		if len(s.Reveal()) < MinScrubbed {
			continue
		}
		if i := slices.IndexFunc(r.known, s.Equal); i >= 0 {
			r.known = append(slices.Delete(r.known, i, i+1), s)
			continue
		}
		r.known = append(r.known, s)
		if len(r.known) > MaxKnown {
			r.known = slices.Delete(r.known, 0, len(r.known)-MaxKnown)
		}
		r.repl = nil
	}
}

// Scrub returns the text with [Redacted] in the place of every secret that is
// known.
func (r *Redactor) Scrub(text string) string {
	if r == nil || text == "" {
		return text
	}
	return r.replacer().Replace(text)
}

// Holds reports whether a text has a secret in it that is known.
func (r *Redactor) Holds(text string) bool { return r.Scrub(text) != text }

// Error returns an error whose text is scrubbed, and which is still what err is
// to errors.Is and errors.As. It returns err itself where there is nothing to
// scrub.
func (r *Redactor) Error(err error) error {
	if err == nil || r == nil {
		return err
	}
	text := err.Error()
	if clean := r.Scrub(text); clean != text {
		return &scrubbed{text: clean, cause: err}
	}
	return err
}

type scrubbed struct {
	text  string
	cause error
}

func (e *scrubbed) Error() string { return e.text }
func (e *scrubbed) Unwrap() error { return e.cause }

func (r *Redactor) replacer() *strings.Replacer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.repl == nil {
		var forms []string
		for _, s := range r.known {
			forms = append(forms, Forms(s)...)
		}
		// Where two begin at the same place the longer one is to go, and a
		// Replacer takes the first that it was given.
		slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
		pairs := make([]string, 0, 2*len(forms))
		for _, f := range forms {
			pairs = append(pairs, f, Redacted)
		}
		r.repl = strings.NewReplacer(pairs...)
	}
	return r.repl
}

// Forms are a secret's value as it may stand in texts: as it is, escaped for
// JSON and for URLs, in hex, and in base64, also in the middle of something
// longer that was encoded, such as user:password. They are secrets as well.
func Forms(s Secret) []string {
	v := s.Reveal()
	if v == "" {
		return nil
	}
	quoted, _ := json.Marshal(v)
	inner := string(quoted[1 : len(quoted)-1])
	forms := []string{
		v, inner, strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(inner),
		url.QueryEscape(v), url.PathEscape(v),
		hex.EncodeToString([]byte(v)), strings.ToUpper(hex.EncodeToString([]byte(v))),
	}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		forms = append(forms, inner64(e, v)...)
		if escaped := url.QueryEscape(v); escaped != v { // as OAuth 2.0 clients send theirs (RFC 6749, section 2.3.1)
			forms = append(forms, inner64(e, escaped)...)
		}
	}
	slices.Sort(forms)
	return slices.DeleteFunc(slices.Compact(forms), func(f string) bool { return len(f) < MinScrubbed })
}

// inner64 is the base64 of v at each of the three places where it may begin
// within a longer text, less the characters that its neighbours decide too. The
// first is v alone, to its end.
func inner64(e *base64.Encoding, v string) []string {
	forms := []string{e.EncodeToString([]byte(v))}
	for lead := range 3 {
		whole := e.EncodeToString([]byte(strings.Repeat("\x00", lead) + v))
		first := (lead*8 + 5) / 6 // the first character made of v's bits alone
		last := (lead + len(v)) * 8 / 6
		if inner := whole[first:last]; len(inner) >= 2*MinScrubbed {
			forms = append(forms, inner)
		}
	}
	return forms
}
