package subject

import "strings"

const upperHex = "0123456789ABCDEF"

// Escape converts any string to one token that is legal in a NATS subject, in the key of a KV
// bucket and in a consumer's name. Letters, digits, '-' and '_' are unchanged; every other byte
// becomes '=' and two upper-case hex digits. So does a leading '_', because names with it are
// reserved for KV and NATS. The empty string becomes "=".
//
// Escape is injective, and [Unescape] reverses it. A ULID or a UUID is returned unchanged and
// without an allocation.
func Escape(id string) string {
	n := escapedLen(id)
	if n == len(id) {
		return id
	}
	var b strings.Builder
	b.Grow(n)
	writeEscaped(&b, id)
	return b.String()
}

// Unescape returns the string that [Escape] has converted to token. It accepts exactly the tokens
// that Escape returns.
func Unescape(token string) (string, error) {
	if token == "=" {
		return "", nil
	}
	if token == "" {
		return "", &Error{What: "id", Value: token, Reason: "is empty"}
	}
	if strings.IndexByte(token, '=') < 0 && isPlain(token) {
		return token, nil
	}
	var b strings.Builder
	b.Grow(len(token))
	for i := 0; i < len(token); i++ {
		c := token[i]
		if c != '=' {
			if !passes(c, i) {
				return "", &Error{What: "id", Value: token, Reason: "holds a character that should be escaped"}
			}
			b.WriteByte(c)
			continue
		}
		if i+2 >= len(token) {
			return "", &Error{What: "id", Value: token, Reason: "ends within an escape"}
		}
		hi, lo := strings.IndexByte(upperHex, token[i+1]), strings.IndexByte(upperHex, token[i+2])
		if hi < 0 || lo < 0 {
			return "", &Error{What: "id", Value: token, Part: "escape " + quote(token[i:i+3]), Reason: "is not = and two upper-case hex digits"}
		}
		d := byte(hi<<4 | lo)
		if passes(d, i) {
			return "", &Error{What: "id", Value: token, Part: "escape " + quote(token[i:i+3]), Reason: "stands for a character that needs none"}
		}
		b.WriteByte(d)
		i += 2
	}
	return b.String(), nil
}

// passes reports whether Escape leaves byte c at index i of a token unchanged.
func passes(c byte, i int) bool { return isWord(c) && (i > 0 || c != '_') }

func isPlain(s string) bool {
	for i := 0; i < len(s); i++ {
		if !passes(s[i], i) {
			return false
		}
	}
	return true
}

// escapedLen returns the length of Escape(id).
func escapedLen(id string) int {
	if id == "" {
		return 1
	}
	n := len(id)
	for i := 0; i < len(id); i++ {
		if !passes(id[i], i) {
			n += 2
		}
	}
	return n
}

func writeEscaped(b *strings.Builder, id string) {
	if id == "" {
		b.WriteByte('=')
		return
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		if passes(c, i) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('=')
		b.WriteByte(upperHex[c>>4])
		b.WriteByte(upperHex[c&15])
	}
}
