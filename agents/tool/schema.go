package tool

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// Validator checks a JSON value. It is safe for concurrent use. Its error's
// text may be shown to a model.
type Validator interface {
	Validate(value json.RawMessage) error
}

// Compiler makes a Validator of a JSON Schema.
type Compiler func(schema json.RawMessage) (Validator, error)

// The bounds of [CompileSchema] and its validators.
const (
	maxSchema    = 256 << 10 // bytes
	maxExponent  = 1000      // of a number, decimal, either sign
	maxDigits    = 1000      // of a number
	maxComplaint = 8         // violations that an error lists
)

// CompileSchema is the [Compiler] that Guard uses by default: JSON Schema, draft
// 2020-12 unless the schema names another. It loads nothing: a $ref that points
// outside the schema is an error. Formats are not asserted.
//
// Numbers whose exponent or digits exceed 1000 are refused, in schemas and in
// values, since comparing them exactly could take all memory there is.
func CompileSchema(schema json.RawMessage) (Validator, error) {
	if len(schema) > maxSchema {
		return nil, fmt.Errorf("schema: %d bytes exceed the bound of %d", len(schema), maxSchema)
	}
	if _, err := decodeValue(schema); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	const url = "mem:///schema"
	c := jsonschema.NewCompiler()
	c.Draft = jsonschema.Draft2020
	c.LoadURL = func(string) (io.ReadCloser, error) {
		return nil, errors.New("a schema may not refer to anything outside itself")
	}
	if err := c.AddResource(url, bytes.NewReader(schema)); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	s, err := c.Compile(url)
	if err != nil {
		return nil, fmt.Errorf("schema: %s", strings.ReplaceAll(err.Error(), url, ""))
	}
	return schemaValidator{s}, nil
}

type schemaValidator struct{ schema *jsonschema.Schema }

func (v schemaValidator) Validate(value json.RawMessage) error {
	doc, err := decodeValue(value)
	if err != nil {
		return err
	}
	err = v.schema.Validate(doc)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return err
	}
	lines := complaints(invalid, nil)
	slices.Sort(lines) // the library walks maps
	more := ""
	if n := len(lines) - maxComplaint; n > 0 {
		lines, more = lines[:maxComplaint], fmt.Sprintf("; and %d more", n)
	}
	return errors.New(strings.Join(lines, "; ") + more)
}

// complaints appends the leaves of a tree of violations as "at /pointer: what".
func complaints(e *jsonschema.ValidationError, lines []string) []string {
	for _, c := range e.Causes {
		lines = complaints(c, lines)
	}
	if len(e.Causes) > 0 {
		return lines
	}
	return append(lines, fmt.Sprintf("at %s: %s", cmp.Or(e.InstanceLocation, "/"), e.Message))
}

// decodeValue reads exactly one JSON value, keeps numbers as they are written,
// and refuses those that are too large to compare exactly.
func decodeValue(raw json.RawMessage) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = errors.New("the JSON ends too soon")
		}
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("more than one JSON value")
	}
	return v, checkNumbers(v)
}

func checkNumbers(v any) error {
	switch v := v.(type) {
	case json.Number:
		mantissa, exp, _ := strings.Cut(strings.ToLower(string(v)), "e")
		n, err := strconv.Atoi(exp)
		if exp != "" && err != nil || n > maxExponent || n < -maxExponent || len(mantissa) > maxDigits {
			return fmt.Errorf("a number of %d characters is beyond what is compared exactly", len(v))
		}
	case []any:
		for _, e := range v {
			if err := checkNumbers(e); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, e := range v {
			if err := checkNumbers(e); err != nil {
				return err
			}
		}
	}
	return nil
}
