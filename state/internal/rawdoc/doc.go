// Package rawdoc reads and changes Agent State documents as raw JSON: it replaces single
// members and keeps the text of all others. Packages state and transfer use it where a
// document must not be decoded into Go values, because that would lose members of other
// platforms or change numbers.
//
// It checks the JSON, not the schema. Its errors have no class; callers add one.
package rawdoc

// MaxDepth limits the nesting of a document.
const MaxDepth = 128
