package schema

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// A Problem is one error at one place of a document.
type Problem struct {
	// Pointer is the JSON pointer (RFC 6901) of the value, "" for the whole document.
	// Long pointers are cut and end in "…".
	Pointer string
	// Keyword is the schema keyword that the value violates ("required", "type", …), or
	// "json" (not well-formed JSON, or a duplicate name), "number" (a number beyond the
	// limits), "limit" (too deep, too large, too much work), and in schemas "keyword" (a
	// keyword that is not accepted).
	Keyword string
	// Message says what was expected. It contains types, sizes and parts of the schema;
	// never a value of the document.
	Message string
	// Place is the JSON pointer, in the schema, of the subschema with the keyword. Only
	// [Schema.Examine] sets it.
	Place string
}

// String returns the problem in one line, pointer first.
func (p Problem) String() string {
	return cmp.Or(p.Pointer, "(root)") + ": " + p.Message + " (" + p.Keyword + ")"
}

// MaxProblems is the most problems that an error lists; beyond it, Truncated is set.
const MaxProblems = 20

// ValidationError lists the problems of a document.
type ValidationError struct {
	Subject   string // what the document is, for instance "task payload of ops.backup"; "": a document
	Problems  []Problem
	Truncated bool // there may be more problems than are listed
}

func (e *ValidationError) Error() string {
	return cmp.Or(e.Subject, "document") + " does not fit its schema: " + summary(e.Problems, e.Truncated)
}

// Strings returns the problems, one in each string, for the errors array of
// aee.validate.payload.
func (e *ValidationError) Strings() []string {
	lines := make([]string, 0, len(e.Problems)+1)
	for _, p := range e.Problems {
		lines = append(lines, p.String())
	}
	if e.Truncated {
		lines = append(lines, "there may be more problems than these")
	}
	return lines
}

// Error lists the problems of a schema. Its pointers refer to the schema.
type Error struct {
	Subject   string // what the schema is for, for instance "task schema of ops.backup"; "": a schema
	Problems  []Problem
	Truncated bool
}

func (e *Error) Error() string {
	return cmp.Or(e.Subject, "schema") + " is refused: " + summary(e.Problems, e.Truncated)
}

// summary returns the first problems: enough to act on, short enough for a log line.
func summary(problems []Problem, truncated bool) string {
	const shown = 3
	var b strings.Builder
	for i, p := range problems {
		if i == shown {
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(p.String())
	}
	switch more := len(problems) - shown; {
	case truncated:
		b.WriteString("; and more")
	case more > 0:
		fmt.Fprintf(&b, "; and %d more", more)
	}
	return b.String()
}

// quoted escapes and shortens a name from the schema or the document for a message.
func quoted(s string) string { return fmt.Sprintf("%q", clip.Text(s, 64)) }
