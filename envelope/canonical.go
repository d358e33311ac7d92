package envelope

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrNumber is wrapped by the error for a number that I-JSON (RFC 7493,
// section 2.2) cannot carry: one that an IEEE 754 double changes. Two
// documents that differ in such a number have the same canonical form, so
// none of them may be signed or hashed.
var ErrNumber = errors.New("number beyond the precision of I-JSON")

// Canonical returns raw in the form of RFC 8785 (JCS), in memory of its own.
func Canonical(raw json.RawMessage) ([]byte, error) {
	return AppendCanonical(make([]byte, 0, len(raw)), raw)
}

// AppendCanonical appends raw in the form of RFC 8785 to dst. JSON that is
// canonical already, as most programs write it, is copied after one look;
// all else goes through the library.
func AppendCanonical(dst []byte, raw json.RawMessage) ([]byte, error) {
	c := canonicalizer{scanner: scanner{data: raw, maxDepth: hardDepth}}
	if c.value(0) && c.pos == len(raw) {
		return append(dst, raw...), nil
	}
	if c.number != nil {
		return dst, c.number
	}
	if err := checkJSON(raw, hardDepth); err != nil {
		return dst, fmt.Errorf("canonical JSON: %w", err)
	}
	if err := checkNumbers(raw); err != nil {
		return dst, err
	}
	v := jsontext.Value(slices.Clone(raw))
	if err := v.Canonicalize(); err != nil {
		return dst, fmt.Errorf("canonical JSON: %w", err)
	}
	return append(dst, v...), nil
}

// Hash returns the hash that references carry: "sha256:" and the hex digest
// of the whole envelope in canonical JSON, signature and unknown members
// included. It is the same for the JSON and the CBOR encoding.
func (e *Envelope) Hash() (string, error) {
	text, err := e.AppendJSON(nil)
	if err != nil {
		return "", err
	}
	canonical, err := Canonical(text)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(canonical)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// canonicalizer looks whether JSON text is canonical as it stands. Its
// methods report false when it is not, or may not be, or is no JSON.
type canonicalizer struct {
	scanner
	number error // set where a number must be refused
}

func (c *canonicalizer) value(depth int) bool {
	if c.pos >= len(c.data) || depth > hardDepth {
		return false
	}
	switch c.data[c.pos] {
	case '"':
		_, ok := c.str()
		return ok
	case '{':
		return c.object(depth)
	case '[':
		return c.array(depth)
	case 't':
		return c.literal("true") == nil
	case 'f':
		return c.literal("false") == nil
	case 'n':
		return c.literal("null") == nil
	}
	return c.num()
}

// str accepts a string whose escapes are those that RFC 8785 writes; \u is
// left to the library.
func (c *canonicalizer) str() (raw []byte, ok bool) {
	raw, escaped, err := c.scanner.str()
	if err != nil {
		return nil, false
	}
	if escaped {
		for i := 0; i < len(raw); i++ {
			if raw[i] != '\\' {
				continue
			}
			if i++; raw[i] == 'u' || raw[i] == '/' {
				return nil, false
			}
		}
	}
	return raw, true
}

// num accepts integers of up to 15 digits, which are their own canonical
// form, and other numbers that are written as RFC 8785 writes them.
func (c *canonicalizer) num() bool {
	from := c.pos
	if c.data[from] != '-' && (c.data[from] < '0' || c.data[from] > '9') || c.scanner.number() != nil {
		return false
	}
	text := c.data[from:c.pos]
	if len(text) <= 15 && plainInteger(text) {
		return true
	}
	f, err := exactFloat(text)
	if err != nil {
		c.number = err
		return false
	}
	var buf [32]byte
	return string(appendFloat(buf[:0], f)) == string(text)
}

func (c *canonicalizer) array(depth int) bool {
	c.pos++
	if c.at(']') {
		c.pos++
		return true
	}
	for c.value(depth + 1) {
		if !c.at(',') {
			return c.close(']')
		}
		c.pos++
	}
	return false
}

func (c *canonicalizer) object(depth int) bool {
	c.pos++
	if c.at('}') {
		c.pos++
		return true
	}
	var last []byte
	for firstMember := true; c.at('"'); firstMember = false {
		raw, ok := c.str()
		// Names are sorted by UTF-16 units; bytes tell the same order only
		// for plain ASCII, so leave others, and escapes, to the library.
		if !ok || !plainASCII(raw) || !firstMember && bytes.Compare(raw, last) <= 0 {
			return false
		}
		last = raw
		if !c.at(':') {
			return false
		}
		c.pos++
		if !c.value(depth + 1) {
			return false
		}
		if !c.at(',') {
			return c.close('}')
		}
		c.pos++
	}
	return false
}

func (c *canonicalizer) at(b byte) bool { return c.pos < len(c.data) && c.data[c.pos] == b }

func (c *canonicalizer) close(b byte) bool {
	ok := c.at(b)
	c.pos++
	return ok
}

func plainASCII(raw []byte) bool {
	for _, b := range raw {
		if b >= 0x80 || b == '\\' {
			return false
		}
	}
	return true
}

func plainInteger(text []byte) bool {
	if text[0] == '-' {
		text = text[1:]
		if text[0] == '0' {
			return false // -0 is written 0
		}
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// checkNumbers refuses raw, which is well-formed, for a number that a double
// would change.
func checkNumbers(raw []byte) error {
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '"':
			s := scanner{data: raw, pos: i}
			if _, _, err := s.str(); err != nil {
				return err
			}
			i = s.pos
		case c == '-' || '0' <= c && c <= '9':
			s := scanner{data: raw, pos: i}
			if err := s.number(); err != nil {
				return err
			}
			if _, err := exactFloat(raw[i:s.pos]); err != nil {
				return err
			}
			i = s.pos
		default:
			i++
		}
	}
	return nil
}

// exactFloat reads a JSON number that a double carries unchanged: one whose
// shortest double form denotes the very same decimal.
func exactFloat(text []byte) (float64, error) {
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsInf(f, 0) {
		return 0, numberError(text)
	}
	var buf [32]byte
	wantDigits, wantExp := decimal(text)
	haveDigits, haveExp := decimal(strconv.AppendFloat(buf[:0], f, 'e', -1, 64))
	if wantDigits != haveDigits || wantExp != haveExp {
		return 0, numberError(text)
	}
	return f, nil
}

func numberError(text []byte) error {
	if len(text) > 40 {
		return fmt.Errorf("%w: %s…", ErrNumber, text[:40])
	}
	return fmt.Errorf("%w: %s", ErrNumber, text)
}

// decimal takes a JSON number apart: its significant digits without zeros at
// either end, and the power of ten of the first one. Zero has no digits.
func decimal(text []byte) (digits string, exp int) {
	s := strings.TrimPrefix(string(text), "-")
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		// An exponent too large for Atoi has been refused by ParseFloat, or
		// belongs to a zero.
		exp, _ = strconv.Atoi(s[i+1:])
		s = s[:i]
	}
	whole, frac, _ := strings.Cut(s, ".")
	exp += len(whole) - 1
	s = whole + frac
	trimmed := strings.TrimLeft(s, "0")
	exp -= len(s) - len(trimmed)
	trimmed = strings.TrimRight(trimmed, "0")
	if trimmed == "" {
		return "", 0
	}
	return trimmed, exp
}

// appendFloat appends f as ECMAScript, and so RFC 8785, writes it.
func appendFloat(dst []byte, f float64) []byte {
	if f == 0 {
		return append(dst, '0')
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// ECMAScript writes e-7, Go writes e-07.
	if n := len(dst); n-from >= 4 && dst[n-4] == 'e' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}
