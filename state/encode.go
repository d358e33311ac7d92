package state

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"reflect"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/go-json-experiment/json/jsontext"
)

// standard and version are the sc_standard and sc_version of this release's documents.
const (
	standard = "SC-006"
	version  = "3.0.0"
)

// checksumLen is the length of a checksum, SHA-256 in hex.
const checksumLen = 2 * sha256.Size

// A hole is the place of the checksum in an encoded document: text[from:to] is the whole
// member with its comma, which the hash leaves out, and the hex digits begin at at. It is
// zero if there is no provenance.checksum.
type hole struct{ from, at, to int }

// appendDocument writes the canonical form of a checkpoint, with zeros as its checksum.
func (c *Checkpoint) appendDocument(dst []byte) ([]byte, hole, error) {
	if c.texts == nil {
		c.texts = new(texts)
	}
	t := c.texts
	t.mu.Lock()
	defer t.mu.Unlock()
	w := writer{b: dst, cache: t}
	checksum := w.document(c, nil)
	t.forget()
	return w.b, checksum, w.err
}

// document writes a checkpoint. If header is not nil, it replaces members of x-aeemesh by those of
// a [Header]'s document.
func (w *writer) document(c *Checkpoint, header func(*field) bool) hole {
	d := &c.Doc
	var checksum hole
	w.begin()
	w.members(stateFields, reflect.ValueOf(d).Elem(), func(f *field) bool {
		switch f.name {
		case "conversation":
			writeList(&w.cache.messages, w, f, d.Conversation, messageFields, messageSize)
		case "memory_snapshot":
			writeList(&w.cache.memories, w, f, d.MemorySnapshot, memoryFields, memorySize)
		case "provenance":
			checksum = w.provenance(d.Provenance)
		case "sc_standard":
			w.text(f.name, standard)
		case "sc_version":
			w.text(f.name, cmp.Or(d.Version, version))
		default:
			return false
		}
		return true
	})
	w.extensions(c, header)
	w.end()
	return checksum
}

// provenance writes the member with zeros as its checksum. source_platform is always set:
// if provenance could be empty without the checksum, two readers might disagree whether
// to hash the empty object.
func (w *writer) provenance(p *aaif.StateProvenance) hole {
	if p == nil {
		p = new(aaif.StateProvenance)
	}
	w.name("provenance")
	w.begin()
	w.opt("captured_by", p.CapturedBy)
	h := hole{from: len(w.b)}
	w.text("checksum", emptyChecksum)
	h.to = len(w.b)
	h.at = h.to - 1 - checksumLen
	if w.b[h.from] != ',' {
		h.to++ // the comma after the member is left out with it
	}
	w.opt("migration_token", p.MigrationToken)
	w.text("source_platform", cmp.Or(p.SourcePlatform, Platform))
	w.opt("source_runtime_version", p.SourceRuntimeVersion)
	w.opt("target_platform", p.TargetPlatform)
	w.end()
	return h
}

var emptyChecksum = strings.Repeat("0", checksumLen)

// sum writes the checksum into an encoded document and returns it. digest is that of the whole
// text, in the form of [Object], or "" for a text smaller than large. Nearly all of a large text
// comes before the checksum, and is hashed once for both.
func (h hole) sum(text []byte) (checksum, digest string) {
	s := sha256.New()
	s.Write(text[:h.from])
	var whole hash.Cloner
	if c, ok := s.(hash.Cloner); ok && len(text) >= large {
		whole, _ = c.Clone()
	}
	s.Write(text[h.to:])
	var sum [sha256.Size]byte
	hex.Encode(text[h.at:h.at+checksumLen], s.Sum(sum[:0]))
	if whole != nil {
		whole.Write(text[h.from:])
		digest = "sha256:" + hex.EncodeToString(whole.Sum(sum[:0]))
	}
	return string(text[h.at : h.at+checksumLen]), digest
}

// large is the size from which EncodeDigest returns a digest: smaller documents are stored in
// their record, which needs none.
const large = 256 << 10

var (
	errOursOnly     = errors.New("is written from Checkpoint.Mesh, not given in Extensions")
	errNotExtension = errors.New("does not begin with x-")
)

// extensions writes the x- members, ours in its place among the others. All other names
// of the document sort before them.
func (w *writer) extensions(c *Checkpoint, header func(*field) bool) {
	ours := c.Mesh.Entity != ""
	for _, m := range sortedMembers(c.Doc.Extensions) {
		switch {
		case m.name == Extension:
			w.fail(m.name, errOursOnly)
		case !strings.HasPrefix(m.name, "x-"):
			w.fail(m.name, errNotExtension)
		}
		if ours && compareNames(m.name, Extension) > 0 {
			w.name(Extension)
			w.mesh(&c.Mesh, header)
			ours = false
		}
		w.anyName(m.name)
		w.cached("extension "+m.name, json.RawMessage(m.value), false)
	}
	if ours {
		w.name(Extension)
		w.mesh(&c.Mesh, header)
	}
}

// mesh writes the x-aeemesh member: the members that this release knows, with those of m.More in
// their order among them.
func (w *writer) mesh(m *Mesh, header func(*field) bool) {
	more := sortedMembers(m.More)
	unknown := func() {
		w.anyName(more[0].name)
		w.canonical(Extension+" "+more[0].name, more[0].value)
		more = more[1:]
	}
	w.begin()
	w.members(meshFields, reflect.ValueOf(m).Elem(), func(f *field) bool {
		for len(more) > 0 && compareNames(more[0].name, f.name) < 0 {
			unknown()
		}
		switch {
		case header != nil && header(f):
		case f.name == "format":
			w.name(f.name)
			w.int(f.path, int64(m.format()))
		default:
			return false
		}
		return true
	})
	for len(more) > 0 {
		unknown()
	}
	w.end()
}

// MarshalJSONTo encodes m as in a document.
func (m Mesh) MarshalJSONTo(enc *jsontext.Encoder) error {
	b, err := m.MarshalJSON()
	if err != nil {
		return err
	}
	return enc.WriteValue(b)
}

// MarshalJSON is MarshalJSONTo for encoding/json.
func (m Mesh) MarshalJSON() ([]byte, error) {
	var w writer
	w.mesh(&m, nil)
	return w.b, w.err
}

type member struct {
	name  string
	value jsontext.Value
}

// sortedMembers returns the members of a JSON object in the order of RFC 8785.
func sortedMembers(object jsontext.Value) []member {
	if len(object) == 0 {
		return nil
	}
	var all []member
	EachMember(object, func(name string, value jsontext.Value) { all = append(all, member{name, value}) })
	sorted.By(all, func(a, b member) int { return compareNames(a.name, b.name) })
	return all
}

// compareNames compares two names by their UTF-16 code units (RFC 8785, section
// 3.2.3).
func compareNames(a, b string) int {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}
