package envelope

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Canonical returns raw in the form of RFC 8785 (JCS), in newly allocated memory. It
// fails if raw is not JSON that [Parse] would accept as a value, and if raw has a number
// that I-JSON cannot represent ([ErrNumber]).
func Canonical(raw json.RawMessage) ([]byte, error) {
	return AppendCanonical(make([]byte, 0, len(raw)), raw)
}

// AppendCanonical appends raw in the form of RFC 8785 to dst. On error it returns dst
// unchanged.
func AppendCanonical(dst []byte, raw json.RawMessage) ([]byte, error) {
	c := canonicalizers.Get().(*canonicalizer)
	c.scanner, c.from, c.out = scanner{data: raw, maxDepth: hardDepth}, 0, dst
	c.skip()
	err := c.value(0)
	c.flush()
	if err == nil {
		err = c.end()
	}
	out := c.out
	c.release()
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, ErrNumber):
		return dst, err
	}
	return dst, fmt.Errorf("canonical JSON: %w", err)
}

// Hash returns the hash for references: "sha256:" and the hex digest of the whole
// envelope in canonical JSON, signature and unknown members included. It is the same for
// the JSON and the CBOR encoding.
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

// canonicalizer rewrites JSON text while it scans it. It copies text that is already
// canonical, which most text from other nodes is, in one piece.
type canonicalizer struct {
	scanner
	from    int // data[from:pos] has still to be copied to out
	out     []byte
	members []canonicalMember // of all open objects
	scratch []byte
}

// canonicalMember is the position of one member in out.
type canonicalMember struct {
	name     []byte // decoded
	from, to int
}

var canonicalizers = sync.Pool{New: func() any { return new(canonicalizer) }}

// release puts c into the pool, without references to the caller's memory, and unless one
// huge text has made its buffers too large.
func (c *canonicalizer) release() {
	c.scanner, c.out = scanner{}, nil
	clear(c.members[:cap(c.members)])
	if cap(c.members) > 1<<10 || cap(c.scratch) > 1<<16 {
		return
	}
	canonicalizers.Put(c)
}

// flush copies data[from:pos] to out.
func (c *canonicalizer) flush() {
	c.out = append(c.out, c.data[c.from:c.pos]...)
	c.from = c.pos
}

// at returns the length that out will have once everything up to pos is copied.
func (c *canonicalizer) at() int { return len(c.out) + c.pos - c.from }

// skip skips white space, which is not written.
func (c *canonicalizer) skip() {
	if c.pos < len(c.data) && c.data[c.pos] <= ' ' {
		c.flush()
		c.space()
		c.from = c.pos
	}
}

func (c *canonicalizer) value(depth int) error {
	if c.pos >= len(c.data) {
		return c.fail("unexpected end")
	}
	switch b := c.data[c.pos]; b {
	case '"':
		_, _, err := c.text()
		return err
	case '{':
		return c.object(depth)
	case '[':
		return c.array(depth)
	default:
		from := c.pos
		if err := c.scanner.value(depth); err != nil {
			return err
		}
		text := c.data[from:c.pos]
		if b != '-' && (b < '0' || b > '9') || len(text) <= safeDigits && plainInteger(text) {
			return nil
		}
		c.pos = from
		c.flush()
		var err error
		c.out, err = appendNumber(c.out, text)
		c.pos += len(text)
		c.from = c.pos
		return err
	}
}

// text scans a string, and returns the bytes between its quotes.
func (c *canonicalizer) text() (raw []byte, escaped bool, err error) {
	from := c.pos
	raw, escaped, err = c.str()
	if err == nil && escaped {
		end := c.pos
		c.pos = from
		c.flush()
		c.out = appendRespelled(c.out, raw)
		c.pos, c.from = end, end
	}
	return raw, escaped, err
}

// appendRespelled writes the inside of a string that str accepted, with the escapes of
// [AppendString].
func appendRespelled(dst, raw []byte) []byte {
	dst = append(dst, '"')
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			dst = append(dst, raw...)
			return append(dst, '"')
		}
		dst = append(dst, raw[:i]...)
		n := escapeLen(raw[i:])
		switch raw[i+1] {
		case 'u':
			var buf [64]byte
			quoted := AppendString(buf[:0], string(unescape(raw[i:i+n])))
			dst = append(dst, quoted[1:len(quoted)-1]...)
		case '/':
			dst = append(dst, '/')
		default:
			dst = append(dst, raw[i:i+n]...)
		}
		raw = raw[i+n:]
	}
}

func (c *canonicalizer) array(depth int) error {
	if depth >= c.maxDepth {
		return c.tooDeep()
	}
	more, err := c.first(']')
	for more && err == nil {
		if err = c.value(depth + 1); err == nil {
			more, err = c.another(']')
		}
	}
	return err
}

func (c *canonicalizer) object(depth int) error {
	if depth >= c.maxDepth {
		return c.tooDeep()
	}
	base, sorted := len(c.members), true
	more, err := c.first('}')
	for more && err == nil {
		if c.pos >= len(c.data) || c.data[c.pos] != '"' {
			return c.fail("a member's name must be a string")
		}
		m := canonicalMember{from: c.at()}
		var escaped bool
		if m.name, escaped, err = c.text(); err != nil {
			return err
		}
		if escaped {
			m.name = unescape(m.name)
		}
		c.skip()
		if c.pos >= len(c.data) || c.data[c.pos] != ':' {
			return c.fail("a colon must follow a member's name")
		}
		c.pos++
		c.skip()
		if err = c.value(depth + 1); err != nil {
			return err
		}
		m.to = c.at()
		if n := len(c.members); n > base && compareUTF16(c.members[n-1].name, m.name) >= 0 {
			sorted = false
		}
		c.members = append(c.members, m)
		more, err = c.another('}')
	}
	if err == nil && !sorted {
		err = c.sort(c.members[base:])
	}
	c.members = c.members[:base]
	return err
}

// first scans the bracket at pos, up to the first element or including the closing
// bracket.
func (c *canonicalizer) first(closing byte) (more bool, err error) {
	c.pos++
	c.skip()
	if c.pos < len(c.data) && c.data[c.pos] == closing {
		c.pos++
		return false, nil
	}
	return true, nil
}

// another scans the comma before the next element, or the closing bracket.
func (c *canonicalizer) another(closing byte) (more bool, err error) {
	c.skip()
	if more, err = c.next(closing); more {
		c.skip()
	}
	return more, err
}

// sort sorts the members of an object that has just been scanned in the order of RFC
// 8785, section 3.2.3.
func (c *canonicalizer) sort(members []canonicalMember) error {
	c.flush()
	from := members[0].from
	c.scratch = append(c.scratch[:0], c.out[from:]...)
	c.out = c.out[:from]
	slices.SortFunc(members, func(a, b canonicalMember) int { return compareUTF16(a.name, b.name) })
	for i, m := range members {
		if i > 0 {
			if bytes.Equal(m.name, members[i-1].name) {
				return c.fail("duplicate name " + quoteName(m.name))
			}
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, c.scratch[m.from-from:m.to-from]...)
	}
	c.out = append(c.out, '}')
	return nil
}

// compareUTF16 compares two texts by their UTF-16 code units. UTF-8 has the same order
// except for characters beyond U+FFFF: in UTF-16 they begin with a surrogate and so come
// before U+E000 to U+FFFF.
func compareUTF16(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] == b[i] {
			continue
		}
		x, y := a[i], b[i]
		if x >= 0xEE && y >= 0xEE && (x >= 0xF0) != (y >= 0xF0) {
			x, y = y, x
		}
		return cmp.Compare(x, y)
	}
	return cmp.Compare(len(a), len(b))
}
