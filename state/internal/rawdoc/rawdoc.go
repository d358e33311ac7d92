package rawdoc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
)

// JSON returns a document's JSON text, whichever encoding it has. No JSON text begins
// with a byte of 0x80 to 0xbf, as a CBOR map does.
func JSON(data []byte) ([]byte, error) {
	if len(data) == 0 {
		return nil, errors.New("it is empty")
	}
	if data[0] < 0x80 || data[0] > 0xbf {
		return data, nil
	}
	return aaif.CBORToJSON(data, MaxDepth)
}

// Checksum returns the SHA-256 of the canonical JSON of doc without the named members of
// provenance.
func Checksum(doc []byte, without ...string) (string, error) {
	_, sum, err := Canonical(doc, without...)
	return sum, err
}

// Canonical returns the canonical JSON of doc, and its checksum without the named members
// of provenance.
func Canonical(doc []byte, without ...string) (canonical []byte, sum string, err error) {
	if canonical, err = envelope.Canonical(doc); err != nil {
		return nil, "", fmt.Errorf("checksum: %w", err)
	}
	text, err := WithoutProvenance(canonical, without...)
	if err != nil {
		return nil, "", fmt.Errorf("checksum: %w", err)
	}
	digest := sha256.Sum256(text)
	return canonical, hex.EncodeToString(digest[:]), nil
}

// WithoutProvenance returns the JSON of doc without the named members of provenance. It
// changes nothing else.
func WithoutProvenance(doc []byte, names ...string) ([]byte, error) {
	members, err := Object(doc)
	if err != nil {
		return nil, err
	}
	for i, m := range members {
		if m.Name != "provenance" || m.Value.Kind() != '{' {
			continue
		}
		inner, err := Object(m.Value)
		if err != nil {
			return nil, err
		}
		members[i].Value = Append(nil, Without(inner, names...))
	}
	return Append(nil, members), nil
}

// A Member is one member of a JSON object. Its value is kept as it was written.
type Member struct {
	Name  string
	Value jsontext.Value
}

// Object reads one JSON object. A duplicate name is an error, as in an Agent State
// document. The values share the memory of data.
func Object(data []byte) ([]Member, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(data))
	if k := d.PeekKind(); k != '{' {
		if _, err := d.ReadValue(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("want an object, have %v", k)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	var members []Member
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		m := Member{Name: name.String()}
		v, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		m.Value = part(data, d, v)
		members = append(members, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	return members, atEnd(d)
}

// Array reads one JSON array. The items share the memory of data.
func Array(data []byte) ([]jsontext.Value, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(data))
	if k := d.PeekKind(); k != '[' {
		return nil, fmt.Errorf("want an array, have %v", k)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	items := []jsontext.Value{}
	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		items = append(items, part(data, d, v))
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	return items, atEnd(d)
}

// part returns the value that d has just read from data, as a part of data.
func part(data []byte, d *jsontext.Decoder, v jsontext.Value) jsontext.Value {
	end := int(d.InputOffset())
	return data[end-len(v) : end : end]
}

// atEnd returns an error unless only white space is left.
func atEnd(d *jsontext.Decoder) error {
	switch _, err := d.ReadToken(); err {
	case io.EOF:
		return nil
	case nil:
		return errors.New("there is more text after the value")
	default:
		return err
	}
}

// Without removes the members with these names. It changes the slice.
func Without(members []Member, names ...string) []Member {
	return slices.DeleteFunc(members, func(m Member) bool { return slices.Contains(names, m.Name) })
}

// Append writes an object with the given members in the given order.
func Append(dst []byte, members []Member) []byte {
	size := 2
	for _, m := range members {
		size += len(m.Name) + len(m.Value) + 4
	}
	dst = slices.Grow(dst, size)
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = envelope.AppendString(dst, m.Name)
		dst = append(dst, ':')
		dst = append(dst, m.Value...)
	}
	return append(dst, '}')
}

// Provenance has the members of a document's provenance that a transfer needs.
type Provenance struct{ Source, Target, Token, Checksum string }

// ReadProvenance reads the member provenance of a document. An absent member is empty.
func ReadProvenance(members []Member) (p Provenance, err error) {
	for _, m := range members {
		if m.Name != "provenance" {
			continue
		}
		inner, err := Object(m.Value)
		if err != nil {
			return p, fmt.Errorf("provenance: %w", err)
		}
		for _, f := range inner {
			field := map[string]*string{
				"source_platform": &p.Source, "target_platform": &p.Target,
				"migration_token": &p.Token, "checksum": &p.Checksum,
			}[f.Name]
			if field == nil {
				continue
			}
			if *field, err = Text(f.Value); err != nil {
				return p, fmt.Errorf("provenance.%s: %w", f.Name, err)
			}
		}
	}
	return p, nil
}

// Text reads a JSON string.
func Text(v jsontext.Value) (string, error) {
	if k := v.Kind(); k != '"' {
		return "", fmt.Errorf("want a string, have %v", k)
	}
	b, err := jsontext.AppendUnquote(nil, v)
	return string(b), err
}

// SetProvenance returns the document with one text member of provenance set.
func SetProvenance(members []Member, name, value string) ([]byte, error) {
	i := Index(members, "provenance")
	if i < 0 {
		i, members = len(members), append(members, Member{"provenance", jsontext.Value("{}")})
	}
	inner, err := Object(members[i].Value)
	if err != nil {
		return nil, fmt.Errorf("provenance: %w", err)
	}
	members = slices.Clone(members)
	members[i].Value = Append(nil, append(Without(inner, name), Member{name, Quote(value)}))
	return Append(nil, members), nil
}

// Index returns the position of the member with this name, or -1.
func Index(members []Member, name string) int {
	return slices.IndexFunc(members, func(m Member) bool { return m.Name == name })
}

// Quote returns s as a JSON string.
func Quote(s string) jsontext.Value { return envelope.AppendString(nil, s) }
