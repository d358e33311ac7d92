package orchestrate

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// A Pointer is a JSON Pointer (RFC 6901) to a part of a value; "" is the whole.
type Pointer string

// ParsePointer checks the form of a pointer.
func ParsePointer(s string) (Pointer, error) {
	if s != "" && s[0] != '/' {
		return "", fmt.Errorf("%q is no JSON Pointer: it must be empty or begin with /", s)
	}
	for rest := s; ; {
		i := strings.IndexByte(rest, '~')
		if i < 0 {
			return Pointer(s), nil
		}
		if rest = rest[i+1:]; rest == "" || rest[0] != '0' && rest[0] != '1' {
			return "", fmt.Errorf("%q is no JSON Pointer: ~ stands only in ~0 and ~1", s)
		}
	}
}

// Find returns the part of a JSON value that the pointer leads to, byte for
// byte. In invalid JSON it finds nothing.
func (p Pointer) Find(value json.RawMessage) (part json.RawMessage, ok bool) {
	if !json.Valid(value) {
		return nil, false
	}
	for token := range jsontext.Pointer(p).Tokens() {
		switch kindOf(value) {
		case '{':
			var members map[string]json.RawMessage
			if json.Unmarshal(value, &members) != nil {
				return nil, false
			}
			if value, ok = members[token]; !ok {
				return nil, false
			}
		case '[':
			var elements []json.RawMessage
			if json.Unmarshal(value, &elements) != nil {
				return nil, false
			}
			i, err := strconv.ParseUint(token, 10, 31)
			if err != nil || i >= uint64(len(elements)) || len(token) > 1 && token[0] == '0' {
				return nil, false
			}
			value = elements[i]
		default:
			return nil, false
		}
	}
	return value, true
}

// kindOf returns the first character of a JSON value.
func kindOf(value json.RawMessage) byte {
	for _, b := range value {
		switch b {
		case ' ', '\t', '\r', '\n':
		default:
			return b
		}
	}
	return 0
}
