package jsonpath

import (
	"strings"
	"unicode/utf8"

	"github.com/aeemesh/aeemesh/agents/condition/limit"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// iregexp is a compiled I-Regexp. An invalid or too large pattern matches
// nothing (RFC 9535, section 2.4.6).
type iregexp struct{ re *limit.Pattern }

func compilePattern(source string, whole bool) *iregexp {
	text, ok := translate(source)
	if !ok {
		return &iregexp{}
	}
	if whole {
		text = `\A(?:` + text + `)\z`
	}
	re, err := limit.Compile(text)
	if err != nil {
		return &iregexp{}
	}
	return &iregexp{re}
}

// size estimates the number of instructions; 0 if the pattern matches nothing.
func (p *iregexp) size() int {
	if p.re == nil {
		return 0
	}
	return p.re.Size()
}

func (p *iregexp) matches(b *limit.Budget, text string) bool {
	return p.re != nil && p.re.Match(b, text)
}

// translate checks that a pattern is an I-Regexp, and translates it to Go's
// syntax. The two differ in the dot, which in I-Regexp matches neither kind of
// line end (RFC 9485, section 5). Go would also accept much that I-Regexp does
// not, such as \d or (?i).
func translate(source string) (string, bool) {
	t := &translator{in: source}
	if !utf8.ValidString(source) || !t.alternatives(0) || t.in != "" {
		return "", false
	}
	return t.out.String(), true
}

type translator struct {
	in  string
	out strings.Builder
}

// take copies n bytes from the source to the result.
func (t *translator) take(n int) bool {
	t.out.WriteString(t.in[:n])
	t.in = t.in[n:]
	return true
}

func (t *translator) alternatives(depth int) bool {
	for t.in != "" && depth < 100 {
		switch c := t.in[0]; c {
		case ')':
			return depth > 0
		case '|':
			t.take(1)
			continue
		case '(':
			t.out.WriteString("(?:")
			t.in = t.in[1:]
			if !t.alternatives(depth+1) || t.in == "" || t.in[0] != ')' {
				return false
			}
			t.take(1)
		case '.':
			t.out.WriteString(`[^\n\r]`)
			t.in = t.in[1:]
		case '[':
			if !t.class() {
				return false
			}
		case '\\':
			if !t.escape() {
				return false
			}
		case '*', '+', '?', '{', '}', ']':
			return false
		default:
			_, n := utf8.DecodeRuneInString(t.in)
			t.take(n)
		}
		if !t.quantifier() {
			return false
		}
	}
	return t.in == "" && depth == 0
}

var quantity = pattern.Of(`^\{[0-9]+(?:,[0-9]*)?\}`)

// quantifier translates at most one quantifier: there are no lazy ones.
func (t *translator) quantifier() bool {
	if t.in == "" {
		return true
	}
	switch t.in[0] {
	case '*', '+', '?':
		return t.take(1)
	case '{':
		m := quantity.RE().FindString(t.in)
		return m != "" && t.take(len(m))
	}
	return true
}

var property = pattern.Of(`^\\[pP]\{(?:L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|Z[lps]?|S[ckmo]?|C[cfno]?)\}`)

func (t *translator) escape() bool {
	if m := property.RE().FindString(t.in); m != "" {
		return t.take(len(m))
	}
	if len(t.in) < 2 || !strings.ContainsRune(`()*+-.?[\]^nrt{|}`, rune(t.in[1])) {
		return false
	}
	return t.take(2)
}

// class translates a character class expression.
func (t *translator) class() bool {
	t.take(1)
	if strings.HasPrefix(t.in, "^") {
		t.take(1)
	}
	if strings.HasPrefix(t.in, "-") {
		t.out.WriteString(`\-`)
		t.in = t.in[1:]
	} else if strings.HasPrefix(t.in, "]") {
		return false
	}
	for t.in != "" {
		switch {
		case t.in[0] == ']':
			return t.take(1)
		case strings.HasPrefix(t.in, "-]"):
			t.out.WriteString(`\-`)
			t.in = t.in[1:]
		case property.RE().MatchString(t.in):
			t.escape()
		default:
			if !t.classChar() {
				return false
			}
			if len(t.in) > 1 && t.in[0] == '-' && t.in[1] != ']' {
				t.take(1)
				if !t.classChar() {
					return false
				}
			}
		}
	}
	return false
}

func (t *translator) classChar() bool {
	switch t.in[0] {
	case '\\':
		return !property.RE().MatchString(t.in) && t.escape()
	case '[', ']', '-':
		return false
	case '&', '~':
		t.out.WriteByte('\\') // escape the characters of which Go makes operators
	}
	_, n := utf8.DecodeRuneInString(t.in)
	return t.take(n)
}
