package aaif

// Limits that apply if Options leave them at zero.
const (
	DefaultMaxBytes = 1 << 20
	DefaultMaxDepth = 64
)

// maxMaxDepth bounds Options.MaxDepth, so that no setting lets a document exhaust the stack.
const maxMaxDepth = 256

// Options say how a document is read. The zero value suits most callers.
type Options struct {
	// Name is the document's origin, for messages; its extension determines the
	// format. Default: none.
	Name string
	// Format is the encoding. Default: by Name's extension (.json, .yaml, .yml, .cbor), else by the first bytes.
	Format Format
	// Kind is the required kind of the document: a worker, for example,
	// requires an agent definition. Default: the kind that the document
	// declares by its x-sc-schema hint, or that follows from its fields.
	Kind Kind
	// MaxBytes bounds the encoded document. Default DefaultMaxBytes, 1 MiB.
	// YAML has further limits, on structure rather than on text: 10,000
	// members, and about a hundred thousand punctuation marks.
	MaxBytes int
	// MaxDepth bounds how deep objects and arrays nest; the document itself is
	// 1. Default DefaultMaxDepth, 64; values above 256 count as 256.
	MaxDepth int
}

func (o Options) withDefaults() Options {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxDepth <= 0 {
		o.MaxDepth = DefaultMaxDepth
	}
	o.MaxDepth = min(o.MaxDepth, maxMaxDepth)
	return o
}
