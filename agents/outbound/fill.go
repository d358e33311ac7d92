package outbound

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// PathSegment escapes a value for one segment of a path. It refuses values that
// could lead a server out of the template's path: empty ones, and those that
// are or contain a dot segment, even when decoded again.
func PathSegment(value string) (string, error) {
	if value == "" {
		return "", fmt.Errorf("it is empty")
	}
	decoded := value
	for range 3 {
		for part := range strings.FieldsFuncSeq(decoded, func(r rune) bool { return r == '/' || r == '\\' || r == ';' }) {
			if part == "." || part == ".." {
				return "", fmt.Errorf("it leads out of the path")
			}
		}
		if strings.ContainsFunc(decoded, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", fmt.Errorf("it has control characters")
		}
		next, err := url.PathUnescape(decoded)
		if err != nil || next == decoded {
			break
		}
		decoded = next
	}
	return url.PathEscape(value), nil
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
