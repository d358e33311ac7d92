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

// Canonical returns raw in the form of RFC 8785 (JCS), in memory of its own.
// It fails where raw is no JSON that [Parse] would accept as a value, and
// where it has a number that I-JSON cannot carry ([ErrNumber]).
func Canonical(raw json.RawMessage) ([]byte, error) {
	return AppendCanonical(make([]byte, 0, len(raw)), raw)
}

// AppendCanonical appends raw in the form of RFC 8785 to dst. On error dst is
// returned as it was.
func AppendCanonical(dst []byte, raw json.RawMessage) ([]byte, error) {
	c := canonicalizers.Get().(*canonicalizer)
	c.scanner = scanner{data: raw, maxDepth: hardDepth}
	c.out = dst
	c.space()
	err := c.value(0)
	if err == nil {
		err = c.end()
	}
	out := c.out
	c.release()
	if err == nil {
		return out, nil
	}
	if errors.Is(err, ErrNumber) {
		return dst, err
	}
	return dst, fmt.Errorf("canonical JSON: %w", err)
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

// canonicalizer writes JSON text anew while it walks over it.
type canonicalizer struct {
	scanner
	out     []byte
	members []canonicalMember // of all objects that are open
	scratch []byte
}

// canonicalMember is one member as it was written to out.
type canonicalMember struct {
	name     []byte // decoded
	from, to int
}

var canonicalizers = sync.Pool{New: func() any { return new(canonicalizer) }}

// release gives c back, without what belongs to the caller and without memory
// that only one huge text needed.
func (c *canonicalizer) release() {
	c.scanner.release()
	c.scanner, c.out = scanner{}, nil
	clear(c.members[:cap(c.members)])
	if cap(c.members) > 1<<10 || cap(c.scratch) > 1<<16 {
		return
	}
	canonicalizers.Put(c)
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
		if b == '-' || '0' <= b && b <= '9' {
			var err error
			c.out, err = appendNumber(c.out, c.data[from:c.pos])
			return err
		}
		c.out = append(c.out, c.data[from:c.pos]...)
		return nil
	}
}

// text writes a string, and returns what stood between its quotes.
func (c *canonicalizer) text() (raw []byte, escaped bool, err error) {
	from := c.pos
	raw, escaped, err = c.str()
	switch {
	case err != nil:
	case escaped:
		c.out = appendRespelled(c.out, raw)
	default:
		c.out = append(c.out, c.data[from:c.pos]...)
	}
	return raw, escaped, err
}

// appendRespelled writes the inside of a string that str accepted, with the
// escapes that [AppendString] would choose.
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
	c.out = append(c.out, '[')
	more, err := c.open(']')
	for more && err == nil {
		c.space()
		if err = c.value(depth + 1); err != nil {
			return err
		}
		if more, err = c.next(']'); more {
			c.out = append(c.out, ',')
		}
	}
	c.out = append(c.out, ']')
	return err
}

func (c *canonicalizer) object(depth int) error {
	if depth >= c.maxDepth {
		return c.tooDeep()
	}
	base, sorted := len(c.members), true
	c.out = append(c.out, '{')
	more, err := c.open('}')
	for more && err == nil {
		c.space()
		if c.pos >= len(c.data) || c.data[c.pos] != '"' {
			return c.fail("a member's name must be a string")
		}
		m := canonicalMember{from: len(c.out)}
		var escaped bool
		if m.name, escaped, err = c.text(); err != nil {
			return err
		}
		if escaped {
			m.name = unescape(m.name)
		}
		if err = c.colon(); err != nil {
			return err
		}
		c.out = append(c.out, ':')
		if err = c.value(depth + 1); err != nil {
			return err
		}
		m.to = len(c.out)
		if n := len(c.members); n > base && compareUTF16(c.members[n-1].name, m.name) >= 0 {
			sorted = false
		}
		c.members = append(c.members, m)
		if more, err = c.next('}'); more {
			c.out = append(c.out, ',')
		}
	}
	if err == nil && !sorted {
		err = c.sort(c.members[base:])
	}
	c.members = c.members[:base]
	c.out = append(c.out, '}')
	return err
}

// sort puts the members of an object, the last thing in out, into the order of
// RFC 8785, section 3.2.3.
func (c *canonicalizer) sort(members []canonicalMember) error {
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
	return nil
}

// compareUTF16 compares two texts by their UTF-16 code units. UTF-8 has the
// same order but for the characters beyond U+FFFF, which begin with a
// surrogate there and so come before U+E000 to U+FFFF.
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
