package schema

import (
	"encoding/json"
	"strings"

	"github.com/aeemesh/aeemesh/envelope/sorted"
)

// equal compares the value at index at with a value of a schema.
func (e *eval) equal(at int32, want any) bool {
	v := &e.values[at]
	e.spend(1)
	switch want := want.(type) {
	case nil:
		return v.kind == kNull
	case bool:
		return v.kind == kBool && (v.raw[0] == 't') == want
	case string:
		// An escape of six bytes stands for at least one byte, so a longer text cannot be equal.
		return v.kind == kString && len(v.raw) <= 6*len(want)+2 && string(e.text(v)) == want
	case json.Number:
		if v.kind != kNumber {
			return false
		}
		if string(v.raw) == want.String() {
			return true
		}
		e.spend(len(v.raw) * 10)
		return ratOf(v.raw).Cmp(ratOf([]byte(want))) == 0
	case []any:
		if v.kind != kArray || int(v.count) != len(want) {
			return false
		}
		c := v.first
		for _, item := range want {
			if !e.equal(c, item) {
				return false
			}
			c = e.values[c].next
		}
		return true
	case map[string]any:
		if v.kind != kObject || int(v.count) != len(want) {
			return false
		}
		for c := v.first; c != none; c = e.values[c].next {
			item, ok := want[string(e.values[c].name)]
			if !ok || !e.equal(c, item) {
				return false
			}
		}
		return true
	}
	return false
}

// distinct reports whether no two items of an array are equal.
func (e *eval) distinct(at int32) bool {
	known := make(map[string]bool, e.values[at].count)
	var key []byte
	for c := e.values[at].first; c != none; c = e.values[c].next {
		if key = e.appendKey(key[:0], c); !e.spend(len(key) + 20) {
			return false
		}
		if known[string(key)] {
			return false
		}
		known[string(key)] = true
	}
	return true
}

// appendKey appends a key of a value: two values have the same key if and only if they are equal.
func (e *eval) appendKey(dst []byte, at int32) []byte {
	v := &e.values[at]
	switch v.kind {
	case kNumber:
		if n, ok := smallInt(v.raw); ok && n != 0 {
			return append(append(dst, v.raw...), ';')
		}
		e.spend(len(v.raw) * 10)
		return append(append(dst, ratOf(v.raw).RatString()...), ';')
	case kString:
		return appendText(dst, e.text(v))
	case kArray:
		dst = append(dst, '[')
		for c := v.first; c != none; c = e.values[c].next {
			dst = e.appendKey(dst, c)
		}
		return append(dst, ']')
	case kObject:
		members := make([]int32, 0, v.count)
		for c := v.first; c != none; c = e.values[c].next {
			members = append(members, c)
		}
		sorted.By(members, func(a, b int32) int {
			return strings.Compare(string(e.values[a].name), string(e.values[b].name))
		})
		dst = append(dst, '{')
		for _, c := range members {
			dst = e.appendKey(appendText(dst, e.values[c].name), c)
		}
		return append(dst, '}')
	}
	return append(dst, v.raw[0]) // null, true, false
}

// appendText writes a string with its quotes doubled, so that its end is unambiguous.
func appendText(dst, text []byte) []byte {
	dst = append(dst, '"')
	for _, c := range text {
		if dst = append(dst, c); c == '"' {
			dst = append(dst, '"')
		}
	}
	return append(dst, '"', ';')
}
