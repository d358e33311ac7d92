package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/envelope"
)

// ContentChecksum is the checksum that a migration token binds: the SHA-256, in hex, of
// the canonical JSON (RFC 8785) of an Agent State document, without provenance.checksum
// and provenance.migration_token.
//
// The checksum in the document itself covers the token (AAIF, Agent State Document:
// "excluding the checksum field"), so the token cannot bind that one. For a document
// without a token both are the same.
func ContentChecksum(doc []byte) (string, error) {
	return checksum(doc, "checksum", "migration_token")
}

// checksum returns the SHA-256 of the canonical JSON of doc without the named members of
// provenance.
func checksum(doc []byte, without ...string) (string, error) {
	text, err := withoutProvenance(doc, without...)
	if err != nil {
		return "", fmt.Errorf("checksum: %w", err)
	}
	canonical, err := envelope.Canonical(text)
	if err != nil {
		return "", fmt.Errorf("checksum: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}

// withoutProvenance returns the JSON of doc without the named members of provenance; all
// else is unchanged.
func withoutProvenance(doc []byte, names ...string) ([]byte, error) {
	members, err := readObject(doc)
	if err != nil {
		return nil, err
	}
	for i, m := range members {
		if m.name != "provenance" || m.value.Kind() != '{' {
			continue
		}
		inner, err := readObject(m.value)
		if err != nil {
			return nil, err
		}
		members[i].value = appendObject(nil, without(inner, names...))
	}
	return appendObject(make([]byte, 0, len(doc)), members), nil
}

// A jsonMember is one member of a JSON object, its value as it was written.
type jsonMember struct {
	name  string
	value jsontext.Value
}

// readObject reads one JSON object. A duplicate name is an error, as in an Agent State
// document.
func readObject(data []byte) ([]jsonMember, error) {
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
	var members []jsonMember
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		m := jsonMember{name: name.String()}
		v, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		m.value = v.Clone()
		members = append(members, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	return members, atEnd(d)
}

// readArray reads one JSON array.
func readArray(data []byte) ([]jsontext.Value, error) {
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
		items = append(items, v.Clone())
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	return items, atEnd(d)
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

func without(members []jsonMember, names ...string) []jsonMember {
	return slices.DeleteFunc(members, func(m jsonMember) bool { return slices.Contains(names, m.name) })
}

// appendObject writes an object with the given members in the given order.
func appendObject(dst []byte, members []jsonMember) []byte {
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = envelope.AppendString(dst, m.name)
		dst = append(dst, ':')
		dst = append(dst, m.value...)
	}
	return append(dst, '}')
}

// provenance holds the fields of the member provenance that handoffs need.
type provenance struct{ source, target, token, checksum string }

func readProvenance(members []jsonMember) (p provenance, err error) {
	for _, m := range members {
		if m.name != "provenance" {
			continue
		}
		inner, err := readObject(m.value)
		if err != nil {
			return p, fmt.Errorf("provenance: %w", err)
		}
		for _, f := range inner {
			field := map[string]*string{
				"source_platform": &p.source, "target_platform": &p.target,
				"migration_token": &p.token, "checksum": &p.checksum,
			}[f.name]
			if field == nil {
				continue
			}
			if *field, err = readText(f.value); err != nil {
				return p, fmt.Errorf("provenance.%s: %w", f.name, err)
			}
		}
	}
	return p, nil
}

// readText reads a JSON string.
func readText(v jsontext.Value) (string, error) {
	if k := v.Kind(); k != '"' {
		return "", fmt.Errorf("want a string, have %v", k)
	}
	b, err := jsontext.AppendUnquote(nil, v)
	return string(b), err
}
