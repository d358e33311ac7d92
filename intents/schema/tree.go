package schema

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// kind is the type of a JSON value, one bit each, so that a set of kinds can represent a
// schema's type keyword.
type kind uint8

const (
	kNull kind = 1 << iota
	kBool
	kNumber
	kString
	kArray
	kObject
	kInteger // only in a schema's set: a number without a fractional part
)

func (k kind) String() string {
	var names []string
	for i, name := range [...]string{"null", "boolean", "number", "string", "array", "object", "integer"} {
		if k&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}

// A value is one JSON value of a tree. It refers to the document's bytes.
type value struct {
	kind                kind
	escaped             bool   // raw is a string with a backslash in it
	parent, first, next int32  // indexes into the tree; none if there is none
	count, index        int32  // number of children; position in the parent
	name                []byte // of an object's member, without quotes and escapes
	raw                 []byte // of a scalar: its text, a string with its quotes
}

const none = -1

// A tree is a parsed document that shares the document's bytes: its values in document
// order, the root first. It is reused for the next document.
type tree struct {
	values    []value
	anyNumber bool // the limits do not apply to numbers: the caller has bounded them
	dec       jsontext.Decoder
	buf       bytes.Buffer
}

// Limits of every document, whatever its schema.
const (
	maxDepth     = 1000 // open objects and arrays; the envelope has the same limit
	maxNumberLen = 400  // characters of a number
	maxExponent  = 400  // of a number: IEEE doubles end at 308
)

// parse parses doc, at most limit values of it. It returns nil, or the problem that made
// it refuse doc: not JSON (a duplicate name and invalid UTF-8 count as such), too deep,
// too many values, or a number that would be too expensive to compute with.
func (t *tree) parse(doc []byte, depth, limit int) *Problem {
	t.values = t.values[:0]
	t.buf = *bytes.NewBuffer(doc)
	t.dec.Reset(&t.buf)
	p := t.parseValue(doc, none, nil, 0, depth, limit)
	if p == nil {
		if _, err := t.dec.ReadToken(); err != io.EOF {
			p = &Problem{Keyword: "json", Message: "there is text after the JSON value"}
		}
	}
	t.buf = bytes.Buffer{}
	t.dec.Reset(&t.buf)
	return p
}

// release drops the references to the document before the tree goes back to the pool.
func (t *tree) release() {
	clear(t.values)
	t.values = t.values[:0]
}

func (t *tree) parseValue(doc []byte, parent int32, name []byte, index int32, depth, limit int) *Problem {
	if len(t.values) >= limit {
		return &Problem{Keyword: "limit", Message: fmt.Sprintf("has more than %d values", limit)}
	}
	me := int32(len(t.values))
	t.values = append(t.values, value{parent: parent, first: none, next: none, name: name, index: index})
	k := t.dec.PeekKind()
	switch k {
	case '{', '[':
		if depth == 0 {
			return &Problem{Pointer: t.pointer(parent), Keyword: "limit", Message: "is nested too deeply"}
		}
		if _, err := t.dec.ReadToken(); err != nil {
			return t.broken(doc, me, err)
		}
		return t.parseChildren(doc, me, k, depth-1, limit)
	}
	raw, err := t.dec.ReadValue()
	if err != nil {
		return t.broken(doc, me, err)
	}
	v := &t.values[me]
	// The decoder reuses its slice; doc contains the same text.
	end := int(t.dec.InputOffset())
	v.raw = doc[end-len(raw) : end]
	switch k {
	case 'n':
		v.kind = kNull
	case 't', 'f':
		v.kind = kBool
	case '"':
		v.kind = kString
		v.escaped = bytes.IndexByte(v.raw, '\\') >= 0
	default:
		v.kind = kNumber
		if why := checkNumber(v.raw); why != "" && !t.anyNumber {
			return &Problem{Pointer: t.pointer(me), Keyword: "number", Message: why}
		}
	}
	return nil
}

func (t *tree) parseChildren(doc []byte, me int32, open jsontext.Kind, depth, limit int) *Problem {
	object := open == '{'
	t.values[me].kind = kArray
	if object {
		t.values[me].kind = kObject
	}
	last := int32(none)
	for i := int32(0); ; i++ {
		switch t.dec.PeekKind() {
		case ']', '}':
			if _, err := t.dec.ReadToken(); err != nil {
				return t.broken(doc, me, err)
			}
			t.values[me].count = i
			return nil
		}
		var name []byte
		if object {
			raw, err := t.dec.ReadValue()
			if err != nil {
				return t.broken(doc, me, err)
			}
			end := int(t.dec.InputOffset())
			if name = doc[end-len(raw)+1 : end-1]; bytes.IndexByte(name, '\\') >= 0 {
				name, _ = jsontext.AppendUnquote(nil, doc[end-len(raw):end]) // parsed above: it is a valid string
			}
		}
		child := int32(len(t.values))
		if p := t.parseValue(doc, me, name, i, depth, limit); p != nil {
			return p
		}
		if last == none {
			t.values[me].first = child
		} else {
			t.values[last].next = child
		}
		last = child
	}
}

// broken returns the problem for malformed JSON. It contains the position only: the
// decoder's own message would quote the document.
func (t *tree) broken(doc []byte, at int32, err error) *Problem {
	p := &Problem{Pointer: t.pointer(at), Keyword: "json"}
	switch {
	case len(bytes.TrimLeft(doc, " \t\r\n")) == 0:
		p.Message = "is empty"
	case errors.Is(err, jsontext.ErrDuplicateName):
		p.Message = fmt.Sprintf("repeats a name, near byte %d", t.dec.InputOffset())
	default:
		p.Message = fmt.Sprintf("is not well-formed JSON, near byte %d", t.dec.InputOffset())
	}
	return p
}

// checkNumber says why a number is beyond the limits, "" if it is not. The limits bound
// the cost of computing with it: 1e1000000 is seven characters and a megabit.
func checkNumber(raw []byte) string {
	if len(raw) > maxNumberLen {
		return fmt.Sprintf("is a number of more than %d characters", maxNumberLen)
	}
	if i := bytes.IndexAny(raw, "eE"); i >= 0 {
		if e, err := strconv.Atoi(string(raw[i+1:])); err != nil || e > maxExponent || e < -maxExponent {
			return fmt.Sprintf("is a number with an exponent beyond ±%d", maxExponent)
		}
	}
	return ""
}

// text returns a string value without quotes and escapes.
func (t *tree) text(v *value) []byte {
	if !v.escaped {
		return v.raw[1 : len(v.raw)-1]
	}
	s, _ := jsontext.AppendUnquote(nil, v.raw) // parsed before: it is a valid string
	return s
}

// member returns the index of an object's member, none if there is no such name.
func (t *tree) member(v *value, name string) int32 {
	for c := v.first; c != none; c = t.values[c].next {
		if string(t.values[c].name) == name {
			return c
		}
	}
	return none
}

// maxPointer is the most bytes of a pointer in a problem: the sender chooses the names in
// a payload.
const maxPointer = 200

// pointer returns the JSON pointer of a value, which is cut if it is long.
func (t *tree) pointer(i int32) string {
	return clip.Text(t.pointerUpTo(i, maxPointer), maxPointer)
}

// pointerUpTo returns the JSON pointer of a value, or a part of it with at least most
// bytes. Each name is cut to about most bytes.
func (t *tree) pointerUpTo(i int32, most int) string {
	var path []int32
	for ; i != none && t.values[i].parent != none; i = t.values[i].parent {
		path = append(path, i)
	}
	var b strings.Builder
	for n := len(path) - 1; n >= 0 && b.Len() <= most; n-- {
		v := &t.values[path[n]]
		b.WriteByte('/')
		if t.values[v.parent].kind == kObject {
			b.WriteString(pointerEscape.Replace(clip.Text(string(v.name), most)))
		} else {
			b.WriteString(strconv.Itoa(int(v.index)))
		}
	}
	return b.String()
}

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")
