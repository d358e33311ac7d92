package aaif

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Document is a valid AAIF document: its original text, and a typed view of
// it. The text keeps what the types do not represent, such as the order of
// members and the digits of a number.
//
// A Document does not change. It is safe for concurrent use as long as no
// goroutine changes what the typed view points to.
type Document struct {
	kind   Kind
	format Format
	source []byte         // as read
	text   jsontext.Value // as JSON; the same as source if that is JSON
	tree   any            // text, decoded

	// One of these is set, by kind.
	definition *Definition
	state      *State
	manifest   *Manifest
	report     *Report
}

// New makes a document from a definition, a state, a manifest or a report that
// a program has made. The same rules apply as to a document that is read.
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

// Kind returns the kind of the document.
func (d *Document) Kind() Kind { return d.kind }

// Format returns the encoding in which the document was read.
func (d *Document) Format() Format { return d.format }

// Definition returns the typed view of an agent definition, nil for other
// kinds. It is shared: to change it, make a copy with [Definition.Clone].
func (d *Document) Definition() *Definition { return d.definition }

// State returns the typed view of an agent state, nil for other kinds.
func (d *Document) State() *State { return d.state }

// Manifest returns the typed view of a platform manifest, nil for other kinds.
func (d *Document) Manifest() *Manifest { return d.manifest }

// Report returns the typed view of a conformance report, nil for other kinds.
func (d *Document) Report() *Report { return d.report }

// Source returns the document as it was read, byte for byte.
func (d *Document) Source() []byte { return bytes.Clone(d.source) }

// Encode writes the document in a format.
//
// JSON and YAML are returned byte for byte, comments included, if the document
// was read in that format. YAML and CBOR are converted to indented JSON, JSON
// and CBOR to block YAML; members keep their order. CBOR is always in the core
// deterministic encoding (RFC 8949, section 4.2.1), which orders members by
// their names; it refuses a number with more digits than a double or a 64-bit
// integer holds.
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

// MarshalJSONTo writes the document's JSON, with members and numbers as they
// were read.
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
