package aaif

import (
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// Parse reads one document. The document must be valid by the kind's schema and
// contain no credential; otherwise the returned [*Error] lists all problems.
//
// Warnings do not keep a document from being parsed: [Document.Lint] has them. The
// document keeps a reference to data, which must not be modified afterwards.
func Parse(data []byte, opts Options) (*Document, error) {
	doc, problems := parse(data, opts)
	if len(problems) > 0 {
		err := &Error{Name: opts.Name, Problems: problems}
		if problems[0].Rule == RuleKind {
			err.Kind = doc.kind
		}
		return nil, err
	}
	return doc, nil
}

// Read reads a document from r, at most Options.MaxBytes of it, and parses it.
// The name replaces Options.Name: it is the document's origin in messages, and
// its extension determines the format.
func Read(name string, r io.Reader, opts Options) (*Document, error) {
	opts.Name = name
	opts = opts.withDefaults()
	data, err := io.ReadAll(io.LimitReader(r, int64(opts.MaxBytes)+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return Parse(data, opts)
}

// parse returns a document, or the errors that prevent it. For a document of
// another kind than the requested one it returns both.
func parse(data []byte, opts Options) (*Document, []Problem) {
	opts = opts.withDefaults()
	if len(data) > opts.MaxBytes {
		return nil, []Problem{errorf("", RuleTooLarge, "the document is larger than %d bytes", opts.MaxBytes)}
	}
	if opts.Format == "" {
		opts.Format = formatOf(opts.Name, data)
	}
	if !opts.Format.valid() {
		return nil, []Problem{errorf("", RuleSyntax, "unknown format %q", opts.Format).hint("json, yaml or cbor")}
	}
	if opts.Kind != "" && !opts.Kind.valid() {
		return nil, []Problem{errorf("", RuleSyntax, "unknown kind of document %q", opts.Kind)}
	}

	doc := &Document{format: opts.Format, source: data}
	var problem *Problem
	switch opts.Format {
	case JSON:
		doc.text = jsontext.Value(data)
	case YAML:
		doc.text, problem = decodeYAML(data, opts.MaxDepth, nil)
	case CBOR:
		doc.text, problem = decodeCBOR(data, opts.MaxDepth)
	}
	if problem != nil {
		return nil, []Problem{*problem}
	}
	tree, problems := decodeJSON(doc.text, opts.MaxDepth)
	if problems != nil {
		return nil, problems
	}
	doc.tree, doc.kind = tree, opts.Kind
	if is := kindOf(tree); doc.kind == "" {
		doc.kind = is
	} else if another(tree, is, opts.Kind) {
		doc.kind = is
		return doc, []Problem{errorf("", RuleKind, "it is %s, and %s is needed", is.article(), opts.Kind.article())}
	}
	problems = validateTree(doc.kind, tree, doc.text)
	problems = append(problems, scanSecrets(doc.kind, tree)...)
	if len(problems) > 0 {
		return nil, doc.locate(sortProblems(problems))
	}
	if err := doc.decode(); err != nil {
		// The schema admits only values that fit the types, so this is a defect
		// of this package.
		return nil, []Problem{errorf("", RuleSchema, "the document cannot be decoded: %v", err)}
	}
	return doc, nil
}

// Locate sorts problems that other packages have found in the document, and
// fills in line and column by the pointer for problems without them, if the
// source is a text.
func (d *Document) Locate(problems []Problem) []Problem { return d.locate(sortProblems(problems)) }

func (d *Document) locate(problems []Problem) []Problem {
	if len(problems) == 0 || d.format == CBOR {
		return problems
	}
	places := make(map[string]position)
	if d.format == JSON {
		for _, p := range problems {
			places[p.Pointer] = position{}
		}
		jsonPositions(d.source, places)
	} else {
		decodeYAML(d.source, maxMaxDepth, places) // the source was decoded before, so this succeeds
	}
	for i, p := range problems {
		if pos := places[p.Pointer]; pos.line > 0 && p.Line == 0 {
			problems[i].Line, problems[i].Column = pos.line, max(pos.column, 1)
		}
	}
	return problems
}
