package envelope

import (
	"bytes"
	"fmt"
	"strconv"
)

// scanner scans JSON text once, strictly by RFC 8259, and refuses what I-JSON (RFC 7493)
// forbids: duplicate names, invalid UTF-8, lone surrogates. It allocates nothing for text
// without escapes.
type scanner struct {
	data     []byte
	pos      int
	maxDepth int
	left     int // 1 + the number of values that may follow; 0 or less: no limit
}

func newScanner(data []byte, limits Limits) scanner {
	return scanner{data: data, maxDepth: limits.MaxDepth, left: limits.MaxValues + 1}
}

// syntaxError is the position and reason of an error in the JSON text.
type syntaxError struct {
	offset int
	msg    string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.msg, e.offset) }

func (s *scanner) fail(msg string) error { return &syntaxError{s.pos, msg} }

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// end fails unless only white space is left.
func (s *scanner) end() error {
	s.space()
	if s.pos != len(s.data) {
		return s.fail("text after the JSON value")
	}
	return nil
}

// value scans one value of any kind, inside depth open objects and arrays.
func (s *scanner) value(depth int) error {
	if s.pos >= len(s.data) {
		return s.fail("unexpected end")
	}
	if s.left--; s.left == 0 {
		return s.fail("more values than an envelope may hold")
	}
	switch c := s.data[s.pos]; c {
	case '"':
		if i := plainEnd(s.data, s.pos+1); i < len(s.data) && s.data[i] == '"' {
			s.pos = i + 1
			return nil
		}
		_, _, err := s.str()
		return err
	case '{':
		return s.object(depth)
	case '[':
		return s.array(depth)
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		if c == '-' || '0' <= c && c <= '9' {
			return s.number()
		}
		return s.fail("a value cannot start with " + strconv.QuoteRune(rune(c)))
	}
}

func (s *scanner) literal(word string) error {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
		return s.fail("invalid literal")
	}
	s.pos += len(word)
	return nil
}

func (s *scanner) number() error {
	d, i := s.data, s.pos
	if d[i] == '-' {
		i++
	}
	switch {
	case i < len(d) && d[i] == '0':
		i++
	case i < len(d) && '1' <= d[i] && d[i] <= '9':
		i = digits(d, i)
	default:
		return s.fail("invalid number")
	}
	if i < len(d) && d[i] == '.' {
		from := i + 1
		if i = digits(d, from); i == from {
			return s.fail("invalid number")
		}
	}
	if i < len(d) && (d[i] == 'e' || d[i] == 'E') {
		i++
		if i < len(d) && (d[i] == '+' || d[i] == '-') {
			i++
		}
		from := i
		if i = digits(d, from); i == from {
			return s.fail("invalid number")
		}
	}
	s.pos = i
	return nil
}

func digits(d []byte, i int) int {
	for i < len(d) && '0' <= d[i] && d[i] <= '9' {
		i++
	}
	return i
}

func (s *scanner) array(depth int) error {
	if depth >= s.maxDepth {
		return s.tooDeep()
	}
	more, err := s.open(']')
	for more && err == nil {
		s.space()
		if err = s.value(depth + 1); err != nil {
			return err
		}
		more, err = s.next(']')
	}
	return err
}

func (s *scanner) tooDeep() error {
	return s.fail("nested deeper than " + strconv.Itoa(s.maxDepth))
}

func (s *scanner) object(depth int) error {
	if depth >= s.maxDepth {
		return s.tooDeep()
	}
	var names nameSet
	more, err := s.open('}')
	for more && err == nil {
		var name []byte
		if name, err = s.name(); err != nil {
			return err
		}
		if !names.add(name) {
			return s.fail("duplicate name " + quoteName(name))
		}
		if err = s.value(depth + 1); err != nil {
			return err
		}
		more, err = s.next('}')
	}
	names.release()
	return err
}

// open scans the bracket at pos and reports whether elements follow before the closing
// bracket.
func (s *scanner) open(closing byte) (more bool, err error) {
	s.pos++
	s.space()
	if s.pos < len(s.data) && s.data[s.pos] == closing {
		s.pos++
		return false, nil
	}
	return true, nil
}

// name scans a member's name and its colon, up to the value, and returns the decoded
// name.
func (s *scanner) name() ([]byte, error) {
	s.space()
	if s.pos >= len(s.data) || s.data[s.pos] != '"' {
		return nil, s.fail("a member's name must be a string")
	}
	name, escaped, err := s.str()
	if err != nil {
		return nil, err
	}
	if escaped {
		name = unescape(name)
	}
	return name, s.colon()
}

// colon scans the colon after a name, up to the value.
func (s *scanner) colon() error {
	if s.pos+1 < len(s.data) && s.data[s.pos] == ':' && s.data[s.pos+1] > ' ' {
		s.pos++
		return nil
	}
	s.space()
	if s.pos >= len(s.data) || s.data[s.pos] != ':' {
		return s.fail("a colon must follow a member's name")
	}
	s.pos++
	s.space()
	return nil
}

// next scans the comma, or the closing bracket, after an element.
func (s *scanner) next(closing byte) (more bool, err error) {
	if s.pos < len(s.data) && s.data[s.pos] == ',' {
		s.pos++
		return true, nil
	}
	s.space()
	if s.pos >= len(s.data) {
		return false, s.fail("unexpected end")
	}
	switch s.data[s.pos] {
	case ',':
		s.pos++
		return true, nil
	case closing:
		s.pos++
		return false, nil
	}
	return false, s.fail("expected a comma or " + strconv.QuoteRune(rune(closing)))
}

// quoteName quotes and shortens a name from a peer for an error message.
func quoteName(name []byte) string {
	if len(name) > 64 {
		name = name[:64]
	}
	return strconv.QuoteToASCII(string(name))
}

// checkJSON fails unless raw is exactly one JSON value that the scanner accepts.
func checkJSON(raw []byte, maxDepth int) error {
	s := scanner{data: raw, maxDepth: maxDepth}
	return s.whole()
}

// whole scans exactly one value.
func (s *scanner) whole() error {
	s.space()
	if err := s.value(0); err != nil {
		return err
	}
	return s.end()
}

// eachMember calls f for each member of an object that checkJSON accepted, until f fails.
func eachMember(raw []byte, f func(name, value []byte) error) error {
	s := scanner{data: raw, maxDepth: hardDepth}
	s.space()
	if s.pos >= len(raw) || raw[s.pos] != '{' {
		return s.fail("not an object")
	}
	more, err := s.open('}')
	for more && err == nil {
		var name []byte
		if name, err = s.name(); err != nil {
			return err
		}
		from := s.pos
		if err = s.value(1); err != nil {
			return err
		}
		if err = f(name, raw[from:s.pos]); err != nil {
			return err
		}
		more, err = s.next('}')
	}
	return err
}
