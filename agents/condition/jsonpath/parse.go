package jsonpath

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds how deep filters and parentheses nest in a query.
const maxDepth = 100

// parser is a recursive descent parser; its methods are named after the rules
// of RFC 9535's ABNF.
type parser struct {
	text  string
	pos   int
	depth int
}

// syntaxError is the value with which the parser panics to stop.
type syntaxError struct{ err error }

func parse(text string) (q *query, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case syntaxError:
			q, err = nil, r.err
		default:
			panic(r)
		}
	}()
	p := &parser{text: text}
	if !utf8.ValidString(text) {
		p.fail("the query is not UTF-8")
	}
	if !p.accept("$") {
		p.fail("a query begins with $")
	}
	q = &query{segments: p.segments()}
	if p.pos < len(text) {
		p.fail("%s is not expected here", p.here())
	}
	return q, nil
}

func (p *parser) fail(format string, args ...any) {
	panic(syntaxError{fmt.Errorf("at %d: %s", 1+utf8.RuneCountInString(p.text[:min(p.pos, len(p.text))]), fmt.Sprintf(format, args...))})
}

// here describes the current position, for errors.
func (p *parser) here() string {
	if p.pos >= len(p.text) {
		return "the end of the query"
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.pos:])
	return strconv.QuoteRune(r)
}

func (p *parser) peek() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

func (p *parser) accept(s string) bool {
	if strings.HasPrefix(p.text[p.pos:], s) {
		p.pos += len(s)
		return true
	}
	return false
}

func (p *parser) expect(s string) {
	if !p.accept(s) {
		p.fail("%s is expected, not %s", s, p.here())
	}
}

func (p *parser) space() {
	for p.pos < len(p.text) && strings.IndexByte(" \t\n\r", p.text[p.pos]) >= 0 {
		p.pos++
	}
}

func (p *parser) down() {
	if p.depth++; p.depth > maxDepth {
		p.fail("the query is nested deeper than %d", maxDepth)
	}
}

func (p *parser) segments() (list []segment) {
	for {
		before := p.pos
		p.space()
		switch {
		case p.accept(".."):
			list = append(list, segment{true, p.afterDots()})
		case p.accept("."):
			if p.peek() == '[' {
				p.fail("no dot stands before [")
			}
			list = append(list, segment{false, p.afterDots()})
		case p.peek() == '[':
			list = append(list, segment{false, p.brackets()})
		default:
			p.pos = before
			return list
		}
	}
}

func (p *parser) afterDots() []selector {
	switch {
	case p.peek() == '[':
		return p.brackets()
	case p.accept("*"):
		return []selector{wildcard{}}
	}
	start := p.pos
	for p.pos < len(p.text) {
		r, n := utf8.DecodeRuneInString(p.text[p.pos:])
		if !(r == '_' || r|0x20 >= 'a' && r|0x20 <= 'z' && r < 0x80 || r >= 0x80 || p.pos > start && r >= '0' && r <= '9') {
			break
		}
		p.pos += n
	}
	if p.pos == start {
		p.fail("a name is expected, not %s", p.here())
	}
	return []selector{name(p.text[start:p.pos])}
}

func (p *parser) brackets() (list []selector) {
	p.expect("[")
	for {
		p.space()
		list = append(list, p.selector())
		p.space()
		if !p.accept(",") {
			p.expect("]")
			return list
		}
	}
}

func (p *parser) selector() selector {
	switch c := p.peek(); {
	case c == '\'' || c == '"':
		return name(p.stringLiteral())
	case p.accept("*"):
		return wildcard{}
	case p.accept("?"):
		p.space()
		return filter{p.logicalExpr()}
	case c == ':' || c == '-' || c >= '0' && c <= '9':
		return p.indexOrSlice()
	}
	p.fail("a selector is expected, not %s", p.here())
	return nil
}

func (p *parser) indexOrSlice() selector {
	var parts [3]*int64
	n, colon := 0, false
	for ; n < 3; n++ {
		if c := p.peek(); c == '-' || c >= '0' && c <= '9' {
			i := p.integer()
			parts[n] = &i
		}
		before := p.pos
		p.space()
		if n == 2 || !p.accept(":") {
			p.pos = before
			break
		}
		colon = true
		p.space()
	}
	if !colon {
		return index(*parts[0])
	}
	return slice{parts[0], parts[1], parts[2]}
}

// maxInteger is the largest integer of I-JSON, 2^53-1.
const maxInteger = 1<<53 - 1

func (p *parser) integer() int64 {
	start := p.pos
	p.accept("-")
	digits := p.digits()
	text := p.text[start:p.pos]
	n, err := strconv.ParseInt(text, 10, 64)
	if digits == "" || text == "-0" || len(digits) > 1 && digits[0] == '0' || err != nil || n > maxInteger || n < -maxInteger {
		p.pos = start
		p.fail("this is no integer of JSONPath")
	}
	return n
}

func (p *parser) digits() string {
	start := p.pos
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		p.pos++
	}
	return p.text[start:p.pos]
}

func (p *parser) stringLiteral() string {
	quote := p.text[p.pos]
	p.pos++
	var out strings.Builder
	for {
		if p.pos >= len(p.text) {
			p.fail("the text has no end")
		}
		switch c := p.text[p.pos]; {
		case c == quote:
			p.pos++
			return out.String()
		case c < 0x20:
			p.fail("a control character in a text is written as \\u%04x", c)
		case c == '\\':
			out.WriteRune(p.escape(quote))
		default:
			out.WriteByte(c)
			p.pos++
		}
	}
}

func (p *parser) escape(quote byte) rune {
	p.pos++
	c := p.peek()
	p.pos++
	switch c {
	case quote, '\\', '/':
		return rune(c)
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'u':
		r := p.hex4()
		switch {
		case r >= 0xDC00 && r <= 0xDFFF:
			p.fail("half a surrogate pair")
		case r >= 0xD800 && r <= 0xDBFF:
			p.expect(`\u`)
			low := p.hex4()
			if low < 0xDC00 || low > 0xDFFF {
				p.fail("half a surrogate pair")
			}
			return 0x10000 + (r-0xD800)<<10 + (low - 0xDC00)
		}
		return r
	}
	p.pos--
	p.fail("\\ before %s means nothing in this text", p.here())
	return 0
}

func (p *parser) hex4() rune {
	if p.pos+4 <= len(p.text) {
		if n, err := strconv.ParseUint(p.text[p.pos:p.pos+4], 16, 32); err == nil {
			p.pos += 4
			return rune(n)
		}
	}
	p.fail("four hex digits are expected")
	return 0
}
