// Package aaif reads, checks and writes AAIF documents: agent definitions,
// agent states, platform manifests and conformance reports
// (draft-schemacommons-aaif-00, standard SC-006).
//
//	doc, err := aaif.Read("reviewer.yaml", file, aaif.Options{Kind: aaif.KindAgent})
//	if err != nil {
//		return err // an *aaif.Error, with every problem, its place and a hint
//	}
//	def := doc.Definition().WithDefaults()
//	entity, err := aaif.EntityName(def.Agent.Name) // "agent.code_reviewer"
//
// # Tour
//
// A document is read by [Parse] or [Read] from JSON, from YAML or from CBOR
// (parse.go), or made by [New] of a typed value. YAML and CBOR are turned into
// JSON text first (yaml.go, cbor.go), so that all three go through one decoder
// with one set of limits (json.go) and behave alike. The tree is validated against the kind's JSON
// Schema (schema.go, schema/). Each error becomes a message with a hint
// (explain.go, suggest.go). Every string is searched for credentials
// (secret.go). The result is a [Document]: the original text, and a typed view
// of it (definition.go and the files beside it, state.go, manifest.go,
// report.go).
//
// [Document.Lint] gives advice about a document, [Definition.Levels] its
// conformance levels, [NotHonoured] the fields that a runtime does not honour;
// [Negotiate] decides whether a runtime may host it. [Document.Encode] writes
// it in any of the three formats.
//
// # Guarantees
//
// All problems are reported together, in a fixed order. The exception is an
// encoding error: it makes the document unreadable and is reported alone.
//
// Reading does not change a document. Encoding it in its own format gives JSON
// and YAML back byte for byte; across formats, members keep their order where
// the format has one, and numbers keep their digits. Defaults are filled in by
// [Definition.WithDefaults] only, in a copy. Extension members (x-…) and
// _comment are kept and have no effect.
//
// The schemas are our own, and accept what the published ones accept, with one
// difference: auth.type may be mtls, as the draft's text says. As in the
// published conformance corpus, format is not asserted: an id that is no UUID,
// a time or a URI of the wrong form is a warning.
//
// # Hostile documents
//
// Documents come from strangers. Size and depth are checked before values are
// built; duplicate names, invalid UTF-8 and numbers that are no IEEE 754
// doubles are refused; so are YAML's anchors, aliases, merge keys, tags and
// further documents, and CBOR's byte strings, tags, integer keys, indefinite
// lengths, NaN and infinities. Schemas, ours and those that documents embed,
// load nothing from disk or network. Messages never quote a text that looks
// like a credential.
//
// # Concurrency
//
// All functions are safe for concurrent use. A Document does not change after
// Parse.
//
// # Limits
//
// provenance.signature is carried, not verified. Conditions are parsed, not
// evaluated. The scan for credentials is heuristic; see secret.go. Typed values
// that a program makes are encoded without empty optional texts; a Document
// that was read keeps them.
package aaif
