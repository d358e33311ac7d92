package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// MinScrubbed is the minimum length of a value that a [Redactor] removes, in
// bytes. Shorter values occur in every text, and are not secret.
const MinScrubbed = 4

// MaxKnown is how many values that were given to Add a [Redactor] stores, and how many that were
// given to Replace. Beyond that it drops those that were added longest ago.
const MaxKnown = 4096

// Redactor removes known secrets from texts: as they are, in base64 and hex,
// and escaped for URLs, HTML, JSON, JSON pointers and Go. The zero Redactor knows none. It is safe for
// concurrent use; a nil Redactor does nothing.
type Redactor struct {
	mu       sync.Mutex
	pinned   []*registered // never dropped
	known    []*registered // the latest last
	replaced []*registered // that Replace has added, the latest last
	forms    []string      // of all
	repl     *strings.Replacer
	heads    map[string][]string // forms, by their first MinScrubbed bytes
}

// registered is a secret that a Redactor knows.
type registered struct {
	secret Secret
	forms  []string // nil until they are needed
	uses   int      // of one that Replace has added: how often, less how often it was replaced
}

func indexOf(entries []*registered, s Secret) int {
	return slices.IndexFunc(entries, func(e *registered) bool { return e.secret.Equal(s) })
}

// Add adds secrets. If parts of a secret are secret by themselves, as in
// user:password, add these, too.
func (r *Redactor) Add(secrets ...Secret) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range secrets {
		r.known = r.latest(r.known, s, 0)
	}
}

// Pin adds secrets that are never dropped. It is for those that are added only once.
func (r *Redactor) Pin(secrets ...Secret) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range secrets {
		if len(s.Reveal()) >= MinScrubbed && indexOf(r.pinned, s) < 0 {
			r.pinned, r.repl = append(r.pinned, &registered{secret: s}), nil
		}
	}
}

// Replace adds a secret, and drops one that it has added earlier, such as the last but one token of
// a client. The other stays if it was also added otherwise. Each of the two may be the zero Secret.
func (r *Redactor) Replace(old, with Secret) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replaced = r.latest(r.replaced, with, 1)
	if i := indexOf(r.replaced, old); i >= 0 {
		if r.replaced[i].uses--; r.replaced[i].uses <= 0 {
			r.replaced, r.repl = slices.Delete(r.replaced, i, i+1), nil
		}
	}
}

// latest puts a secret at the end of entries, of which it drops the first if they are too many.
func (r *Redactor) latest(entries []*registered, s Secret, uses int) []*registered {
	if len(s.Reveal()) < MinScrubbed {
		return entries
	}
	if i := indexOf(entries, s); i >= 0 {
		e := entries[i]
		e.uses += uses
		return append(slices.Delete(entries, i, i+1), e)
	}
	r.repl = nil
	entries = append(entries, &registered{secret: s, uses: uses})
	return slices.Delete(entries, 0, max(0, len(entries)-MaxKnown))
}

// Scrub returns the text with every known secret replaced by [Redacted]. It also replaces the
// beginning of a secret before "…", where a text was clipped, if that has [MinScrubbed] bytes.
func (r *Redactor) Scrub(text string) string {
	if r == nil || text == "" {
		return text
	}
	repl, heads := r.replacer()
	parts := strings.Split(repl.Replace(text), clipped)
	for i, p := range parts[:len(parts)-1] {
		if at := begun(heads, p); at < len(p) {
			parts[i] = p[:at] + Redacted
		}
	}
	return strings.Join(parts, clipped)
}

// clipped marks the cut of a text that was shortened: by package clip, and by many servers.
const clipped = "…"

// begun returns the start of a form that is cut off at the end of a text; len(text) if there is
// none.
func begun(heads map[string][]string, text string) int {
	for i := 0; i <= len(text)-MinScrubbed; i++ {
		for _, f := range heads[text[i:i+MinScrubbed]] {
			if strings.HasPrefix(f, text[i:]) {
				return i
			}
		}
	}
	return len(text)
}

// Head scrubs the beginning of a longer text. It also replaces the first part of a secret that the
// cut has divided, if that has [MinScrubbed] bytes.
func (r *Redactor) Head(text string) string {
	if r == nil {
		return text
	}
	_, heads := r.replacer()
	at := begun(heads, text)
	if at == len(text) {
		return r.Scrub(text)
	}
	return r.Scrub(text[:at]) + Redacted
}

// Tail scrubs the end of a longer text as [Redactor.Head] scrubs its beginning.
func (r *Redactor) Tail(text string) string {
	at := 0
	for _, f := range r.all() {
		for i := min(len(text), len(f)); i > at && i >= MinScrubbed; i-- {
			if strings.HasSuffix(f, text[:i]) {
				at = i
			}
		}
	}
	if at == 0 {
		return r.Scrub(text)
	}
	return Redacted + r.Scrub(text[at:])
}

// Holds reports whether a text contains a known secret.
func (r *Redactor) Holds(text string) bool { return r.Scrub(text) != text }

// JSON returns valid JSON with every known secret replaced, in strings of any spelling and in
// numbers, which become strings. Its bytes stay as they are if it contains no secret.
func (r *Redactor) JSON(raw json.RawMessage) json.RawMessage {
	if r == nil {
		return raw
	}
	if bytes.IndexByte(raw, '\\') >= 0 || !json.Valid([]byte(r.Scrub(string(raw)))) { // with escapes a secret can be written in many ways
		raw = r.values(raw)
	}
	clean := r.Scrub(string(raw))
	switch {
	case clean == string(raw):
		return raw
	case json.Valid([]byte(clean)):
		return json.RawMessage(clean)
	}
	quoted, err := json.Marshal(clean) // the secret was an object, for example
	if err != nil {
		return json.RawMessage(`"` + Redacted + `"`)
	}
	return quoted
}

// values redacts the strings and numbers in JSON one by one.
func (r *Redactor) values(raw json.RawMessage) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	changed := false
	if d.Decode(&v) != nil {
		return raw
	}
	if v = r.walk(v, &changed); !changed {
		return raw
	}
	clean, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return clean
}

func (r *Redactor) walk(v any, changed *bool) any {
	switch v := v.(type) {
	case string:
		clean := r.Scrub(v)
		*changed = *changed || clean != v
		return clean
	case json.Number:
		if clean := r.Scrub(string(v)); clean != string(v) {
			*changed = true
			return clean
		}
	case []any:
		for i := range v {
			v[i] = r.walk(v[i], changed)
		}
	case map[string]any:
		for name, member := range v {
			if clean := r.Scrub(name); clean != name {
				*changed = true
				delete(v, name)
				name = clean
			}
			v[name] = r.walk(member, changed)
		}
	}
	return v
}

// Error returns an error with a scrubbed text that still matches err for
// errors.Is and errors.As. It returns err itself if there is nothing to scrub. If err has an
// [*envelope.Error], which peers read, that is scrubbed with its members.
func (r *Redactor) Error(err error) error {
	if err == nil || r == nil {
		return err
	}
	text := err.Error()
	out := err
	if clean := r.Scrub(text); clean != text {
		out = &scrubbed{text: clean, cause: err}
	}
	var said *envelope.Error
	if !errors.As(err, &said) || said == nil {
		return out
	}
	told := said.WithCause(out)
	changed := false
	scrub := func(text string) string {
		clean := r.Scrub(text)
		changed = changed || clean != text
		return clean
	}
	told.Message, told.EvidenceRefs, told.Details = scrub(said.Message), slices.Clone(said.EvidenceRefs), slices.Clone(said.Details)
	for i, ref := range told.EvidenceRefs {
		told.EvidenceRefs[i] = scrub(ref)
	}
	for i, d := range told.Details {
		clean := r.JSON(d.Value)
		changed = changed || !bytes.Equal(clean, d.Value)
		told.Details[i] = envelope.Member{Name: scrub(d.Name), Value: clean}
	}
	if !changed {
		return out
	}
	return told
}

type scrubbed struct {
	text  string
	cause error
}

func (e *scrubbed) Error() string { return e.text }
func (e *scrubbed) Unwrap() error { return e.cause }

// all returns the forms of all known secrets, the longest first.
func (r *Redactor) all() []string {
	if r == nil {
		return nil
	}
	r.replacer()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forms
}

// replacer returns the replacer of the known secrets, and their forms by their first bytes.
// Neither is changed later.
func (r *Redactor) replacer() (*strings.Replacer, map[string][]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.repl == nil {
		r.forms, r.heads = nil, make(map[string][]string)
		for _, e := range slices.Concat(r.pinned, r.known, r.replaced) {
			if e.forms == nil {
				e.forms = Forms(e.secret)
			}
			r.forms = append(r.forms, e.forms...)
		}
		// If two forms begin at the same place, the longer one must be
		// replaced: a Replacer uses the first in its list.
		slices.SortFunc(r.forms, func(a, b string) int { return len(b) - len(a) })
		pairs := make([]string, 0, 2*len(r.forms))
		for _, f := range r.forms {
			pairs = append(pairs, f, Redacted)
			r.heads[f[:MinScrubbed]] = append(r.heads[f[:MinScrubbed]], f)
		}
		r.repl = strings.NewReplacer(pairs...)
	}
	return r.repl, r.heads
}

// Forms returns the forms of a secret's value that may occur in texts: as it
// is and as a name in a JSON pointer, escaped for JSON, Go, HTML and URLs, in
// hex, and in base64, also as a part of a longer encoded text such as
// user:password; of a key in PEM also each of its lines. The forms are secrets
// as well.
func Forms(s Secret) []string {
	v := s.Reveal()
	if v == "" {
		return nil
	}
	forms := append(escapes(v), hex.EncodeToString([]byte(v)), strings.ToUpper(hex.EncodeToString([]byte(v))))
	if pointer := pointerName.Replace(v); pointer != v {
		forms = append(forms, escapes(pointer)...)
	}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		forms = append(forms, inner64(e, v)...)
		if escaped := url.QueryEscape(v); escaped != v { // the encoding of OAuth 2.0 clients (RFC 6749, section 2.3.1)
			forms = append(forms, inner64(e, escaped)...)
		}
	}
	if strings.Contains(v, "\n") { // a log may contain the secret line by line
		for _, line := range keyLine.RE().FindAllString(v, -1) {
			forms = append(forms, strings.TrimSuffix(line, "\r"))
		}
	}
	slices.Sort(forms)
	return slices.DeleteFunc(slices.Compact(forms), func(f string) bool { return len(f) < MinScrubbed })
}

// pointerName escapes a name in a JSON pointer (RFC 6901, section 3).
var pointerName = strings.NewReplacer("~", "~0", "/", "~1")

// escapes returns a text, unchanged and with each kind of escapes that Forms lists.
func escapes(v string) []string {
	quoted, _ := json.Marshal(v)
	forms := []string{inside(string(quoted))}
	plain, _ := jsontext.AppendQuote(nil, v) // without escapes for HTML
	for _, j := range []string{inside(string(plain)), ascii(inside(string(plain)), "%04x"), ascii(inside(string(plain)), "%04X")} {
		forms = append(forms, j, strings.ReplaceAll(j, "/", `\/`))
	}
	slices.Sort(forms)
	forms = slices.Compact(forms)
	for _, j := range forms { // JSON in a string of JSON, or quoted by Go
		again, _ := jsontext.AppendQuote(nil, j)
		forms = append(forms, inside(string(again)), inside(strconv.Quote(j)))
	}
	query := url.QueryEscape(v)
	for _, e := range []string{query, url.PathEscape(v), url.User(v).String(), (&url.URL{Path: "/" + v}).EscapedPath()[1:]} { // each leaves other characters unescaped
		forms = append(forms, e, lowerEscapes(e))
	}
	return append(forms, v, inside(strconv.Quote(v)), inside(strconv.QuoteToASCII(v)), html.EscapeString(v), component.Replace(query))
}

// inside returns a text without its quotes.
func inside(quoted string) string { return quoted[1 : len(quoted)-1] }

// ascii escapes all characters of a JSON string that are not ASCII, with digits in the given
// format.
func ascii(text, digits string) string {
	var b strings.Builder
	for _, r := range text {
		if r < utf8.RuneSelf-1 {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u`+digits, unit)
		}
	}
	return b.String()
}

// keyLine matches a line of a key in PEM. Its last line may be too short to be recognised.
var keyLine = pattern.Of(`(?m)^[A-Za-z0-9+/]{16,}={0,2}\r?$`)

// component turns QueryEscape's result into that of JavaScript's
// encodeURIComponent.
var component = strings.NewReplacer("+", "%20", "%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*")

// lowerEscapes writes percent-escapes with small letters, as some servers do.
func lowerEscapes(escaped string) string {
	b := []byte(escaped)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i:], bytes.ToLower(b[i:i+3]))
			i += 2
		}
	}
	return string(b)
}

// inner64 returns the base64 of v at each of the three offsets at which it may
// begin within a longer text, without the characters that also depend on its
// neighbours. The first is v alone, to its end.
func inner64(e *base64.Encoding, v string) []string {
	forms := []string{e.EncodeToString([]byte(v))}
	for lead := range 3 {
		whole := e.EncodeToString([]byte(strings.Repeat("\x00", lead) + v))
		first := (lead*8 + 5) / 6 // the first character that depends on v only
		last := (lead + len(v)) * 8 / 6
		if inner := whole[first:last]; len(inner) >= 2*MinScrubbed {
			forms = append(forms, inner)
		}
	}
	return forms
}
