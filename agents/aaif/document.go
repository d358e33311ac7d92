package aaif

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Document is a valid AAIF document: its text as it was read, and a typed view of it. Whatever the types
// leave out, such as the order of members and the digits of a number, the text keeps.
//
// A Document does not change; it may be used by any number of goroutines, as long as none of them changes what
// the typed view points to.
type Document struct {
	kind   Kind
	format Format
	source []byte         // as read
	text   jsontext.Value // as JSON; the source itself where that is JSON
	tree   any            // the text, decoded

	// One of these, by kind.
	definition *Definition
	state      *State
	manifest   *Manifest
	report     *Report
}

// New makes a document of a definition, a state, a manifest or a report that a program has put together. It
// is held to the same rules as one that was read.
func New[T *Definition | *State | *Manifest | *Report](v T) (*Document, error) {
	var kind Kind
	switch any(v).(type) {
	case *Definition:
		kind = KindAgent
	case *State:
		kind = KindState
	case *Manifest:
		kind = KindManifest
	case *Report:
		kind = KindReport
	}
	if v == nil {
		return nil, fmt.Errorf("aaif: no %s to make a document of", kind)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	return Parse(text, Options{Format: JSON, Kind: kind, MaxBytes: max(len(text), 1), MaxDepth: maxMaxDepth})
}

// Kind is the kind of the document.
func (d *Document) Kind() Kind { return d.kind }

// Format is the encoding in which the document was read.
func (d *Document) Format() Format { return d.format }

// Definition is the typed view of an agent definition, nil for another kind. It is shared: change a copy, such
// as the one that [Definition.Clone] makes.
func (d *Document) Definition() *Definition { return d.definition }

// State is the typed view of an agent state, nil for another kind.
func (d *Document) State() *State { return d.state }

// Manifest is the typed view of a platform manifest, nil for another kind.
func (d *Document) Manifest() *Manifest { return d.manifest }

// Report is the typed view of a conformance report, nil for another kind.
func (d *Document) Report() *Report { return d.report }

// Source is the document as it was read, byte for byte.
func (d *Document) Source() []byte { return bytes.Clone(d.source) }

// Encode writes the document in a format.
//
// In the format it was read in, JSON and YAML come back byte for byte, comments included. YAML and CBOR turn
// into indented JSON; JSON and CBOR turn into block YAML; members keep their order. CBOR is always in the
// core deterministic encoding (RFC 8949, section 4.2.1), which orders members by their names; it refuses a
// number with more digits than a double or a 64-bit integer holds.
func (d *Document) Encode(f Format) ([]byte, error) {
	switch f {
	case JSON:
		if d.format == JSON {
			return bytes.Clone(d.source), nil
		}
		v := d.text.Clone()
		if err := v.Indent(jsontext.WithIndent("  ")); err != nil {
			return nil, fmt.Errorf("encode JSON: %w", err)
		}
		return append(v, '\n'), nil
	case YAML:
		if d.format == YAML {
			return bytes.Clone(d.source), nil
		}
		return encodeYAML(d.text)
	case CBOR:
		return encodeCBOR(d.tree)
	}
	return nil, fmt.Errorf("encode: unknown format %q", f)
}

// MarshalJSONTo writes the document's JSON, members and numbers as they were read.
func (d *Document) MarshalJSONTo(enc *jsontext.Encoder) error { return enc.WriteValue(d.text) }

// MarshalJSON is MarshalJSONTo for encoding/json.
func (d *Document) MarshalJSON() ([]byte, error) {
	v := d.text.Clone()
	if err := v.Compact(); err != nil {
		return nil, err
	}
	return v, nil
}

// decode fills in the typed view.
func (d *Document) decode() error {
	switch d.kind {
	case KindAgent:
		d.definition = new(Definition)
		return json.Unmarshal(d.text, d.definition)
	case KindState:
		d.state = new(State)
		return json.Unmarshal(d.text, d.state)
	case KindManifest:
		d.manifest = new(Manifest)
		return json.Unmarshal(d.text, d.manifest)
	default:
		d.report = new(Report)
		return json.Unmarshal(d.text, d.report)
	}
}

// Extension returns one extension member of a document as JSON. The name starts with "x-".
func (d *Document) Extension(name string) ([]byte, bool) {
	if len(name) < 2 || name[:2] != "x-" {
		return nil, false
	}
	var members map[string]jsontext.Value
	if json.Unmarshal(d.text, &members) != nil {
		return nil, false
	}
	v, ok := members[name]
	return v, ok
}
