package envelope

import (
	"bytes"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// str scans a string and returns the bytes between its quotes, and whether they contain
// escapes.
func (s *scanner) str() (raw []byte, escaped bool, err error) {
	d := s.data
	i := s.pos + 1
	for {
		i = plainEnd(d, i)
		if i >= len(d) {
			return nil, false, s.fail("unterminated string")
		}
		switch c := d[i]; {
		case c == '"':
			raw = d[s.pos+1 : i]
			s.pos = i + 1
			return raw, escaped, nil
		case c == '\\':
			escaped = true
			n := escapeLen(d[i:])
			if n == 0 {
				s.pos = i
				return nil, false, s.fail("invalid escape in string")
			}
			i += n
		case c < 0x20:
			s.pos = i
			return nil, false, s.fail("control character in string")
		default:
			r, n := utf8.DecodeRune(d[i:])
			if r == utf8.RuneError && n <= 1 {
				s.pos = i
				return nil, false, s.fail("invalid UTF-8")
			}
			i += n
		}
	}
}

// plainEnd returns the first index at or after i whose byte is a quote, a backslash, a
// control character or not ASCII. It examines eight bytes at a time.
func plainEnd[T string | []byte](d T, i int) int {
	for ; i <= len(d)-8; i += 8 {
		if special := specials(word(d[i : i+8])); special != 0 {
			return i + bits.TrailingZeros64(special)/8
		}
	}
	if i < len(d) && len(d) >= 8 {
		// The last eight bytes, shifted so that those already examined are gone. The
		// zeros that the shift adds at the end count as control characters.
		seen := uint(i - (len(d) - 8))
		return i + bits.TrailingZeros64(specials(word(d[len(d)-8:])>>(8*seen)))/8
	}
	for i < len(d) {
		if c := d[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			break
		}
		i++
	}
	return i
}

// word returns the first eight bytes of d as a little-endian integer.
func word[T string | []byte](d T) uint64 {
	_ = d[7]
	return uint64(d[0]) | uint64(d[1])<<8 | uint64(d[2])<<16 | uint64(d[3])<<24 |
		uint64(d[4])<<32 | uint64(d[5])<<40 | uint64(d[6])<<48 | uint64(d[7])<<56
}

// highBits masks the high bit of each byte, which is set in bytes that are not ASCII.
const highBits = 0x8080808080808080

// specials sets the high bit of each byte of w that is below 0x20, a quote, a backslash,
// or not ASCII. Borrows can set bits only above the first such byte.
func specials(w uint64) uint64 {
	const ones = 0x0101010101010101
	quote := w ^ ones*'"'
	slash := w ^ ones*'\\'
	return ((w - ones*0x20) | (quote - ones) | (slash - ones) | w) & highBits
}

// escapeLen returns the length of the escape sequence at the beginning of d, or 0 if it
// is invalid. A high surrogate counts together with the low one that must follow.
func escapeLen(d []byte) int {
	if len(d) < 2 {
		return 0
	}
	switch d[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		r, ok := hex4(d)
		if !ok {
			return 0
		}
		if !utf16.IsSurrogate(r) {
			return 6
		}
		low, ok := hex4(d[6:])
		if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
			return 0
		}
		return 12
	}
	return 0
}

// hex4 decodes \uXXXX.
func hex4(d []byte) (rune, bool) {
	if len(d) < 6 || d[0] != '\\' || d[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range d[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape decodes the inside of a string that str accepted.
func unescape(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		c := raw[i]
		if c != '\\' {
			out = append(out, c)
			i++
			continue
		}
		switch raw[i+1] {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, _ := hex4(raw[i:])
			if utf16.IsSurrogate(r) {
				low, _ := hex4(raw[i+6:])
				r = utf16.DecodeRune(r, low)
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, raw[i+1])
		}
		i += escapeLen(raw[i:])
	}
	return out
}

// stringValue decodes a JSON string that checkJSON accepted; ok is false for
// any other value.
func stringValue(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') >= 0 {
		inner = unescape(inner)
	}
	return string(inner), true
}
