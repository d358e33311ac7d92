package outbound

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// PathSegment escapes a value for one segment of a path. It refuses values that
// could lead a server out of the template's path: empty ones, and those that
// are or contain a dot segment, even when decoded again.
func PathSegment(value string) (string, error) {
	if value == "" {
		return "", errors.New("it is empty")
	}
	if err := staysInside(value); err != nil {
		return "", err
	}
	return url.PathEscape(value), nil
}

// CheckSegment checks a segment after PathSegment's results were filled in: they
// may form a dot segment together with their neighbours. A path of several
// segments is checked the same way.
func CheckSegment(escaped string) error {
	if escaped == "" {
		return errors.New("a segment is empty")
	}
	return staysInside(escaped)
}

// maxEscapes is how many times a value may be escaped.
const maxEscapes = 5

// staysInside refuses a value that has control characters, or is or contains a
// dot segment, however often it is decoded.
func staysInside(value string) error {
	for range maxEscapes {
		for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == '/' || r == '\\' || r == ';' }) {
			if part == "." || part == ".." {
				return errors.New("it leads out of the path")
			}
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return errors.New("it has control characters")
		}
		next := unescape(value)
		if next == value {
			return nil
		}
		value = next
	}
	return errors.New("it is escaped too many times")
}

// escape matches a byte that is percent-encoded.
var escape = pattern.Of(`%[0-9A-Fa-f]{2}`)

// unescape decodes as lenient servers do: an incomplete escape stays as it is,
// and does not keep the others from being decoded.
func unescape(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	return escape.RE().ReplaceAllStringFunc(text, func(e string) string {
		n, _ := strconv.ParseUint(e[1:], 16, 8)
		return string([]byte{byte(n)})
	})
}

// FilledURL parses a URL into whose path PathSegment's escapes were filled. It keeps them.
// url.Parse alone drops every escape of a path that contains a byte which has to be escaped and is not,
// such as those of "é": then a "/" in an argument starts another segment.
func FilledURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.RawPath == "" {
		return u, err
	}
	var path strings.Builder
	for _, c := range []byte(u.RawPath) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~!$&'()*+,;=:@[]%/", c) >= 0 {
			path.WriteByte(c)
		} else {
			fmt.Fprintf(&path, "%%%02X", c)
		}
	}
	if u.RawPath = path.String(); u.EscapedPath() != u.RawPath {
		return nil, errors.New("the path cannot be escaped")
	}
	return u, nil
}

// Scalar returns a JSON string, number or boolean as text. ok is false for
// other values.
func Scalar(raw json.RawMessage) (text string, ok bool) {
	if len(raw) == 0 {
		return "", false
	}
	switch raw[0] {
	case '"':
		err := json.Unmarshal(raw, &text)
		return text, err == nil
	case '{', '[', 'n':
		return "", false
	}
	return string(raw), true
}
