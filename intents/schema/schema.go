package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"regexp/syntax"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// A Schema is a compiled JSON Schema. It is safe for concurrent use.
type Schema struct {
	raw       json.RawMessage
	root      *rule
	annotates bool
	emptyOK   bool // whether {} conforms: checked so often that the answer is computed once
}

// Compile compiles a JSON Schema from any source, also an untrusted one.
//
// It supports the drafts 2020-12 (the default without $schema), 2019-09, 07, 06 and 04.
// It asserts format in every draft. It loads nothing from disk or network: a $ref must
// refer to a place in the same schema. It also refuses schemas beyond the limits (256
// KiB, 64 levels, 2,000 subschemas, regular expressions of 2,000 instructions), endless
// references, $id below the top, dynamic and recursive references, and regular
// expressions that RE2 does not support. The error is an [*Error]; raw is not retained.
//
// To compile many schemas of one origin, use a [Pool].
func Compile(raw json.RawMessage) (*Schema, error) {
	if _, err := vet(raw); err != nil {
		return nil, err
	}
	return build(raw)
}

// build compiles a schema that has been vetted.
func build(raw json.RawMessage) (*Schema, error) {
	compiled, err := compile(raw)
	if err != nil {
		return nil, &Error{Problems: compilerProblems(err)}
	}
	b := &builder{rules: map[*jsonschema.Schema]*rule{}}
	s := &Schema{raw: append(json.RawMessage(nil), raw...), root: b.rule(compiled), annotates: b.annotates}
	if b.endless() {
		return nil, refuse("$ref", "leads back to itself without end")
	}
	problems, _ := s.validate([]byte("{}"))
	s.emptyOK = len(problems) == 0
	return s, nil
}

// JSON returns the schema's text, as it was compiled. Callers must not change it.
func (s *Schema) JSON() json.RawMessage { return s.raw }

// Validate validates a JSON document against the schema. The error is a
// [*ValidationError] with all problems, up to [MaxProblems]. Duplicate names and invalid
// UTF-8 are always problems. Numbers are compared exactly; a number of more than 400
// characters or with an exponent beyond ±400 is refused, and so is a document that takes
// too much work.
func (s *Schema) Validate(doc json.RawMessage) error {
	if s.emptyOK && len(doc) == 2 && doc[0] == '{' && doc[1] == '}' {
		return nil
	}
	if problems, truncated := s.validate(doc); len(problems) > 0 {
		return &ValidationError{Problems: problems, Truncated: truncated}
	}
	return nil
}

// TakesObject reports whether the type keyword at the root permits an object.
func (s *Schema) TakesObject() bool {
	return !s.root.never && (s.root.types == 0 || s.root.types&kObject != 0)
}

// schemaURL is the URL of the schema for the compiler.
const schemaURL = "mem:///schema"

// compile runs the compiler on a vetted schema. It converts panics to errors: the
// compiler asserts the types of some keywords of other drafts without a check.
func compile(raw json.RawMessage) (s *jsonschema.Schema, err error) {
	defer func() {
		if r := recover(); r != nil {
			s, err = nil, fmt.Errorf("the compiler failed: %s", clip.Text(fmt.Sprint(r), 200))
		}
	}()
	c := jsonschema.NewCompiler()
	c.AssertFormat = true
	c.Formats = maps.Clone(formats)
	c.LoadURL = func(string) (io.ReadCloser, error) { return nil, errOtherDocument }
	if err := c.AddResource(schemaURL, strings.NewReader(string(raw))); err != nil {
		return nil, err
	}
	return c.Compile(schemaURL)
}

// errOtherDocument is a second safeguard: vet refuses references to other documents before.
var errOtherDocument = errors.New("refers to another document; schemas are never loaded from disk or network")

// compilerProblems converts the compiler's errors: it keeps the innermost causes, which
// are the most specific.
func compilerProblems(err error) []Problem {
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		var wrong *jsonschema.SchemaError
		if errors.As(err, &wrong) && wrong.Err != nil {
			err = wrong.Err
		}
		message := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "jsonschema: "), schemaURL, "")
		return []Problem{{Keyword: "schema", Message: clip.Text(message, 300)}}
	}
	var problems []Problem
	var walk func(v *jsonschema.ValidationError)
	walk = func(v *jsonschema.ValidationError) {
		for _, cause := range v.Causes {
			walk(cause)
		}
		if len(v.Causes) == 0 && len(problems) < MaxProblems {
			pointer, err := url.PathUnescape(v.InstanceLocation)
			if err != nil {
				pointer = v.InstanceLocation
			}
			keyword := v.KeywordLocation[strings.LastIndexByte(v.KeywordLocation, '/')+1:]
			problems = append(problems, Problem{Pointer: clip.Text(pointer, maxPointer), Keyword: keyword, Message: clip.Text(v.Message, 300)})
		}
	}
	walk(invalid)
	return problems
}

// formats are the compiler's formats. Its "regex" is replaced, because it would compile
// any regular expression in a payload.
var formats = func() map[string]func(any) bool {
	m := maps.Clone(jsonschema.Formats)
	m["regex"] = func(v any) bool {
		expr, ok := v.(string)
		if !ok {
			return true
		}
		if len(expr) > maxPatternLength {
			return false
		}
		_, err := syntax.Parse(expr, syntax.Perl)
		return err == nil
	}
	return m
}()
