package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/state/internal/rawdoc"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A parsed document has all its members decoded, except x-aeemesh, of which only the
// fields of outer are.
type parsed struct {
	text       []byte
	doc        aaif.State
	mesh       span // of x-aeemesh in text, empty if there is none
	provenance span
	outer      outer
}

// A span is text[from:to].
type span struct{ from, to int }

// outer is the part of x-aeemesh that is read first: it says how to decode the rest.
type outer struct {
	Format int     `json:"format"`
	Entity string  `json:"entity"`
	Sealed *sealed `json:"sealed"`
	Object *Object `json:"object"`
}

// parse reads a document's JSON text. It refuses duplicate names, invalid UTF-8, members
// that the specification does not know, and text after the document.
func parse(text []byte) (*parsed, error) {
	p := &parsed{text: text}
	if err := p.members(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if p.mesh == (span{}) {
		return p, nil
	}
	if err := json.Unmarshal(text[p.mesh.from:p.mesh.to], &p.outer); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, Extension, err)
	}
	switch f := p.outer.Format; {
	case f > Format:
		return nil, fmt.Errorf("%w: format %d of %s, this release reads up to %d", ErrNewer, f, Extension, Format)
	case f < 1:
		return nil, fmt.Errorf("%w: %s has no format", ErrInvalid, Extension)
	case p.outer.Entity == "":
		return nil, fmt.Errorf("%w: %s has no entity", ErrInvalid, Extension)
	}
	return p, nil
}

func (p *parsed) members() error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(p.text))
	if tok, err := dec.ReadToken(); err != nil {
		return err
	} else if tok.Kind() != '{' {
		return errNotObject
	}
	var others bytes.Buffer // other platforms' x- members
	for dec.PeekKind() != '}' {
		tok, err := dec.ReadToken()
		if err != nil {
			return err
		}
		name := tok.String()
		if err := p.member(dec, name, &others); err != nil {
			return fmt.Errorf("%s: %w", clip.Text(name, 80), err)
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return errors.New("there is more text after the document")
	}
	if others.Len() > 0 {
		others.WriteByte('}')
		p.doc.Extensions = others.Bytes()
	}
	return nil
}

var errUnknown = errors.New("is not known (other platforms' members begin with x-)")

// member reads the value of one member of the document.
func (p *parsed) member(dec *jsontext.Decoder, name string, others *bytes.Buffer) error {
	i := slices.IndexFunc(stateFields, func(f field) bool { return f.name == name })
	if i < 0 || name == "provenance" {
		return p.raw(dec, name, others)
	}
	to := reflect.ValueOf(&p.doc).Elem().Field(stateFields[i].index).Addr().Interface()
	return json.UnmarshalDecode(dec, to, json.RejectUnknownMembers(true))
}

// raw reads the members whose position or raw text is needed.
func (p *parsed) raw(dec *jsontext.Decoder, name string, others *bytes.Buffer) error {
	if name != "provenance" && !strings.HasPrefix(name, "x-") {
		return errUnknown
	}
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	to := int(dec.InputOffset())
	at := span{to - len(value), to}
	switch name {
	case "provenance":
		p.provenance = at
		return json.Unmarshal(value, &p.doc.Provenance, json.RejectUnknownMembers(true))
	case Extension:
		if value.Kind() != '{' {
			return errNotObject
		}
		p.mesh = at
	default:
		if sep := byte(','); others.Len() == 0 {
			others.WriteByte('{')
		} else {
			others.WriteByte(sep)
		}
		others.Write(envelope.AppendString(nil, name))
		others.WriteByte(':')
		others.Write(value)
	}
	return nil
}

// verify checks the document's checksum. Our own documents are in canonical form, so it
// hashes their text directly.
func (p *parsed) verify(mayLack bool) error {
	if p.doc.Provenance == nil || p.doc.Provenance.Checksum == "" {
		if mayLack {
			return nil
		}
		return ErrNoChecksum
	}
	if err := isChecksum(p.doc.Provenance.Checksum); err != nil {
		return err
	}
	want := strings.ToLower(p.doc.Provenance.Checksum)
	if p.sum() == want {
		return nil
	}
	q, err := p.canonical()
	if err != nil {
		return err
	}
	if q == p || q.sum() != want {
		return ErrChecksum
	}
	return nil
}

// isChecksum returns ErrNoChecksum for a text that cannot be a checksum.
func isChecksum(text string) error {
	if text == "" {
		return ErrNoChecksum
	}
	if raw, err := hex.DecodeString(text); err != nil || len(raw) != sha256.Size {
		return fmt.Errorf("%w: %q is no SHA-256 in hex", ErrNoChecksum, clip.Text(text, 80))
	}
	return nil
}

// ContentChecksum is the checksum that a migration token binds: the SHA-256, in hex, of
// the canonical JSON (RFC 8785) of an Agent State document, without provenance.checksum
// and provenance.migration_token.
//
// The checksum in the document itself covers the token (AAIF, Agent State Document:
// "excluding the checksum field"), so the token cannot bind that one. For a document
// without a token both are the same.
func ContentChecksum(doc []byte) (string, error) {
	return rawdoc.Checksum(doc, "checksum", "migration_token")
}

// CheckChecksum verifies the provenance.checksum of an Agent State document, JSON or
// CBOR, and returns the correct one. The error is ErrNoChecksum, ErrChecksum or
// ErrInvalid.
func CheckChecksum(doc []byte) (want string, err error) {
	text, err := asJSON(doc)
	if err != nil {
		return "", err
	}
	members, err := rawdoc.Object(text)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	p, err := rawdoc.ReadProvenance(members)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	with, err := rawdoc.SetProvenance(members, "checksum", "") // the checksum is computed with a provenance object in the document
	if err == nil {
		want, err = rawdoc.Checksum(with, "checksum")
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := isChecksum(p.Checksum); err != nil {
		return want, err
	}
	if !strings.EqualFold(p.Checksum, want) {
		return want, ErrChecksum
	}
	return want, nil
}

// noChecksum is the type of ErrNoChecksum.
type noChecksum struct{}

func (noChecksum) Error() string { return "the document has no checksum" }

func (noChecksum) Is(target error) bool { return target == ErrChecksum }

// canonical returns the document in canonical form: p itself if it has that form.
func (p *parsed) canonical() (*parsed, error) {
	text, err := envelope.Canonical(p.text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if bytes.Equal(text, p.text) {
		return p, nil
	}
	return parse(text)
}

// sum returns the SHA-256 of the text without provenance.checksum, in hex.
func (p *parsed) sum() string {
	text := p.text
	at, ok := memberSpan(text, p.provenance, "checksum")
	if !ok {
		return ""
	}
	h := sha256.New()
	h.Write(text[:at.from])
	h.Write(text[at.to:])
	return hex.EncodeToString(h.Sum(nil))
}

// memberSpan finds a member of the object in text[object], including the comma that is
// removed with it.
func memberSpan(text []byte, object span, name string) (span, bool) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(text[object.from:object.to]))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return span{}, false
	}
	for dec.PeekKind() == '"' {
		key, err := dec.ReadValue()
		if err != nil {
			return span{}, false
		}
		from := object.from + int(dec.InputOffset()) - len(key)
		found := string(key) == `"`+name+`"`
		if err := dec.SkipValue(); err != nil {
			return span{}, false
		}
		if !found {
			continue
		}
		at := span{from, object.from + int(dec.InputOffset())}
		switch {
		case text[at.from-1] == ',':
			at.from--
		case text[at.to] == ',':
			at.to++
		}
		return at, true
	}
	return span{}, false
}

// A storedMesh is Mesh without its methods, to decode it by its fields.
type storedMesh Mesh

// meshOptions decode raw values from the strings that contain them, and refuse data that
// would be lost.
var meshOptions = json.JoinOptions(
	json.RejectUnknownMembers(true),
	json.WithUnmarshalers(json.JoinUnmarshalers(
		json.UnmarshalFromFunc(func(dec *jsontext.Decoder, raw *stdjson.RawMessage) error {
			var s string
			if err := json.UnmarshalDecode(dec, &s); err != nil {
				return err
			}
			if !jsontext.Value(s).IsValid() {
				return errors.New("a string that holds no JSON")
			}
			*raw = stdjson.RawMessage(s)
			return nil
		}),
		json.UnmarshalFromFunc(func(dec *jsontext.Decoder, d *time.Duration) error {
			var ms int64
			if err := json.UnmarshalDecode(dec, &ms); err != nil {
				return err
			}
			if *d = time.Duration(ms) * time.Millisecond; int64(*d/time.Millisecond) != ms {
				return fmt.Errorf("a duration of %d ms is too long", ms)
			}
			return nil
		}),
	)),
)

// checkpoint decodes x-aeemesh, and checks the whole checkpoint.
func (p *parsed) checkpoint() (*Checkpoint, error) {
	c := &Checkpoint{Doc: p.doc}
	if p.mesh == (span{}) {
		_, err := aaif.Parse(p.text, aaif.Options{Format: aaif.JSON, Kind: aaif.KindState, MaxBytes: len(p.text), MaxDepth: MaxDepth})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	} else if err := json.Unmarshal(p.text[p.mesh.from:p.mesh.to], (*storedMesh)(&c.Mesh), meshOptions); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, Extension, err)
	}
	if c.Doc.Standard != standard {
		return nil, fmt.Errorf("%w: sc_standard must be %s", ErrInvalid, standard)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	return c, nil
}
