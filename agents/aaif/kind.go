package aaif

import (
	"bytes"
	"path"
	"slices"
	"strings"
)

// Kind is one of the four kinds of AAIF document.
type Kind string

const (
	KindAgent    Kind = "agent"              // an agent definition
	KindState    Kind = "agent-state"        // a checkpoint of a run
	KindManifest Kind = "platform-manifest"  // what a runtime offers
	KindReport   Kind = "conformance-report" // what a runtime claims
)

// Kinds returns the four kinds.
func Kinds() []Kind { return []Kind{KindAgent, KindState, KindManifest, KindReport} }

func (k Kind) valid() bool { return slices.Contains(Kinds(), k) }

// schemaFile is the file name of the kind's schema, which a document's
// x-sc-schema hint may give.
func (k Kind) schemaFile() string { return string(k) + ".schema.json" }

// schemaHint is the extension key that names the schema a document is meant for.
const schemaHint = "x-sc-schema"

// kindOf determines the kind of a document: first by its x-sc-schema hint, then
// by fields that only one kind has. A document without either counts as an
// agent definition, the most common kind.
func kindOf(tree any) Kind {
	root, ok := tree.(map[string]any)
	if !ok {
		return KindAgent
	}
	if hint, ok := root[schemaHint].(string); ok {
		if k := Kind(strings.TrimSuffix(path.Base(hint), ".schema.json")); k.valid() {
			return k
		}
	}
	has := func(name string) bool { _, ok := root[name]; return ok }
	switch {
	case has("agent"):
		return KindAgent
	case has("state_id"), has("checkpoint_at"):
		return KindState
	case has("claims"), has("report"):
		return KindReport
	case has("platform"):
		return KindManifest
	default:
		return KindAgent
	}
}

// another reports whether a document is clearly of another kind than the
// requested one: it has the fields of that kind, and not those of the requested
// one.
func another(tree any, is, want Kind) bool {
	root, ok := tree.(map[string]any)
	if !ok || is == want {
		return false
	}
	_, agent := root["agent"]
	return (is == KindAgent) == agent // a document without any distinctive field counts as an agent only if one is requested
}

// article is the kind as words, with its article.
func (k Kind) article() string {
	switch k {
	case KindAgent:
		return "an agent definition"
	case KindState:
		return "an agent state"
	case KindManifest:
		return "a platform manifest"
	case KindReport:
		return "a conformance report"
	}
	return "an AAIF document of kind " + string(k)
}

// Format is an encoding of documents.
type Format string

const (
	JSON Format = "json"
	YAML Format = "yaml"
	CBOR Format = "cbor"
)

// MediaTypeCBOR is the media type of an AAIF document in CBOR (Binary Encoding).
const MediaTypeCBOR = `application/cbor; profile="https://schemacommons.org/SC-006/cbor"`

// MediaType is the media type of documents in this format, or "" for an unknown
// format.
func (f Format) MediaType() string {
	switch f {
	case JSON:
		return "application/json"
	case YAML:
		return "application/yaml"
	case CBOR:
		return MediaTypeCBOR
	}
	return ""
}

func (f Format) valid() bool { return f.MediaType() != "" }

// formatOf determines the format by the name's extension, else by the first
// bytes.
//
// The first byte of a CBOR array or map (0x80–0xbf) never starts UTF-8 text,
// and neither does CBOR's self-describing tag, so the two cannot be confused. A
// text that starts with a brace, a bracket or a quote is JSON.
func formatOf(name string, data []byte) Format {
	switch strings.ToLower(path.Ext(name)) {
	case ".json":
		return JSON
	case ".yaml", ".yml":
		return YAML
	case ".cbor":
		return CBOR
	}
	text := bytes.TrimLeft(data, " \t\r\n")
	switch {
	case len(text) == 0:
		return JSON
	case data[0] >= 0x80 && data[0] <= 0xbf, bytes.HasPrefix(data, []byte{0xd9, 0xd9, 0xf7}):
		return CBOR
	case text[0] == '{', text[0] == '[', text[0] == '"':
		return JSON
	}
	return YAML
}
