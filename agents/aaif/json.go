package aaif

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// maxNumberLen bounds the length of a number; the exact decimal form of any
// IEEE 754 double is shorter.
const maxNumberLen = 1100

// decodeJSON reads one JSON value: strings, bools, nil, json.Number, []any and
// map[string]any, the types that the schema validator needs. It refuses
// duplicate names, invalid UTF-8, numbers beyond a double, anything nested
// deeper than maxDepth and anything after the value.
func decodeJSON(data []byte, maxDepth int) (any, []Problem) {
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return nil, []Problem{errorf("", RuleSyntax, "the text starts with a byte order mark").
			hint("save it as UTF-8 without one")}
	}
	d := treeDecoder{dec: jsontext.NewDecoder(bytes.NewBuffer(data)), maxDepth: maxDepth}
	tree, err := d.value(1)
	if err == nil {
		if _, err = d.dec.ReadToken(); err == io.EOF {
			return tree, nil
		} else if err == nil {
			err = errTrailing
		}
	}
	return nil, []Problem{jsonProblem(data, d.dec, err)}
}

var errTrailing = errors.New("there is more text after the document")

// A treeDecoder decodes a JSON value in one pass over its tokens.
type treeDecoder struct {
	dec      *jsontext.Decoder
	maxDepth int
}

func (d *treeDecoder) value(depth int) (any, error) {
	tok, err := d.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return tok.Bool(), nil
	case '"':
		return tok.String(), nil
	case '0':
		lit := tok.String()
		if p, ok := checkNumber(lit); !ok {
			return nil, p
		}
		return stdjson.Number(lit), nil
	}
	if depth > d.maxDepth {
		return nil, tooDeep(d.maxDepth)
	}
	if tok.Kind() == '{' {
		return d.object(depth)
	}
	return d.array(depth)
}

func (d *treeDecoder) object(depth int) (any, error) {
	m := make(map[string]any)
	for d.dec.PeekKind() != '}' {
		name, err := d.dec.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		if m[key], err = d.value(depth + 1); err != nil {
			return nil, err
		}
	}
	_, err := d.dec.ReadToken()
	return m, err
}

func (d *treeDecoder) array(depth int) (any, error) {
	s := []any{}
	for d.dec.PeekKind() != ']' {
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		s = append(s, v)
	}
	_, err := d.dec.ReadToken()
	return s, err
}

// A decodeError is a problem that a recursive decoder returns; each level adds
// its part of the pointer.
type decodeError struct {
	rule    Rule
	message string
	hint    string
}

func (e *decodeError) Error() string { return e.message }

func tooDeep(limit int) *decodeError {
	return &decodeError{rule: RuleTooDeep, message: "objects and arrays nest deeper than " + strconv.Itoa(limit)}
}

// checkNumber reports whether a JSON number can be represented as an IEEE 754
// double, up to rounding. Implementations disagree about larger numbers: one
// clamps, one makes an infinity, one computes with a million digits.
func checkNumber(lit string) (*decodeError, bool) {
	if len(lit) <= 15 && strings.IndexByte(lit, 'e') < 0 && strings.IndexByte(lit, 'E') < 0 {
		return nil, true
	}
	if len(lit) > maxNumberLen {
		return &decodeError{rule: RuleNumberRange, message: "a number of " + strconv.Itoa(len(lit)) + " characters"}, false
	}
	f, err := strconv.ParseFloat(lit, 64)
	mantissa, _, _ := strings.Cut(strings.ToLower(lit), "e")
	if err != nil || f == 0 && strings.ContainsAny(mantissa, "123456789") {
		return &decodeError{rule: RuleNumberRange, message: clip.Text(lit, 60) + " is outside the range of an IEEE 754 double"}, false
	}
	return nil, true
}

// jsonProblem converts a decoding error to a problem with its place.
func jsonProblem(data []byte, dec *jsontext.Decoder, err error) Problem {
	p := Problem{Severity: SeverityError, Rule: RuleSyntax, Pointer: string(dec.StackPointer())}
	offset := dec.InputOffset()
	var syntactic *jsontext.SyntacticError
	var own *decodeError
	switch {
	case errors.As(err, &own):
		p.Rule, p.Message, p.Hint = own.rule, own.message, own.hint
		at := map[string]position{p.Pointer: {}}
		jsonPositions(data, at)
		p.Line, p.Column = at[p.Pointer].line, at[p.Pointer].column
		return p
	case errors.Is(err, errTrailing):
		p.Pointer, p.Message = "", err.Error()
	case errors.As(err, &syntactic):
		p.Pointer, offset = string(syntactic.JSONPointer), syntactic.ByteOffset
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			p.Rule, p.Message = RuleDuplicateName, "this name is in the object twice"
		case !utf8.Valid(data):
			p.Rule, p.Message = RuleEncoding, "the text is not UTF-8"
			offset = int64(invalidUTF8(data))
		case errors.Is(err, io.ErrUnexpectedEOF):
			p.Message = "the document ends too early"
		case strings.Contains(syntactic.Err.Error(), "surrogate"):
			p.Rule, p.Message = RuleEncoding, "half a surrogate pair in a string is no character"
		default:
			p.Message = "not JSON: " + syntactic.Err.Error()
		}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		p.Pointer, p.Message = "", "the document is empty"
	default:
		p.Message = "not JSON: " + err.Error()
	}
	p.Line, p.Column = lineColumn(data, int(offset))
	return p
}

// invalidUTF8 returns the offset of the first byte that is not valid UTF-8.
func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(data)
}

// A position is a place in a text; line and column count from 1, the column in
// characters.
type position struct{ line, column int }

func lineColumn(data []byte, offset int) (line, column int) {
	offset = min(max(offset, 0), len(data))
	before := data[:offset]
	start := bytes.LastIndexByte(before, '\n') + 1
	return 1 + bytes.Count(before, []byte{'\n'}), 1 + utf8.RuneCount(before[start:])
}

// jsonPositions fills in the positions of the values at some pointers: of a
// member the position of its name, of an item that of its first byte. The text
// must be valid.
func jsonPositions(data []byte, wanted map[string]position) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true))
	line, column, from := 1, 1, 0
	for left := len(wanted); left > 0; {
		start := int(dec.InputOffset())
		tok, err := dec.ReadToken()
		if err != nil {
			return
		}
		if k := tok.Kind(); k == '}' || k == ']' {
			continue
		}
		pointer := string(dec.StackPointer())
		if pos, ok := wanted[pointer]; !ok || pos.line > 0 {
			continue
		}
		start += len(data[start:]) - len(bytes.TrimLeft(data[start:], " \t\r\n,:"))
		l, c := lineColumn(data[from:start], start-from)
		if l > 1 {
			line, column = line+l-1, c
		} else {
			column += c - 1
		}
		from = start
		wanted[pointer] = position{line, column}
		left--
	}
}
