package aaif

// Limits that hold when Options leave them at zero.
const (
	DefaultMaxBytes = 1 << 20
	DefaultMaxDepth = 64
)

// maxMaxDepth bounds Options.MaxDepth, so that no setting lets a document exhaust the stack.
const maxMaxDepth = 256

// Options say how a document is read. The zero value is right for most callers.
type Options struct {
	// Name is where the document came from, for messages; its extension gives the format. Default: none.
	Name string
	// Format is the encoding. Default: by Name's extension (.json, .yaml, .yml, .cbor), else by the first bytes.
	Format Format
	// Kind is what the document has to be: a worker that wants an agent definition says so. Default: whatever
	// the document says, by its x-sc-schema hint or by its fields.
	Kind Kind
	// MaxBytes bounds the encoded document. Default DefaultMaxBytes, 1 MiB. YAML has bounds of its own besides,
	// on structure rather than on text: 10,000 members, and some hundred thousand punctuation marks.
	MaxBytes int
	// MaxDepth bounds how deep objects and arrays nest; the document itself is 1. Default DefaultMaxDepth, 64;
	// more than 256 is taken as 256.
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
