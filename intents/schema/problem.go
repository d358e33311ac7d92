package schema

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// A Problem is one thing wrong with one place of a document.
type Problem struct {
	// Pointer is the JSON pointer (RFC 6901) of the value, "" for the whole
	// document. Overlong pointers are cut and end in "…".
	Pointer string
	// Keyword is the schema keyword that refused it ("required", "type", …),
	// or "json" (not well-formed JSON, or a duplicate name), "number" (a number
	// beyond the bounds), "limit" (too deep, too large, too much work), and in
	// schemas "keyword" (a keyword that is not accepted).
	Keyword string
	// Message says what was expected. It tells types and sizes, and what the
	// schema says; never a value from the document.
	Message string
}

// String is the problem in one line, pointer first.
func (p Problem) String() string {
	return cmp.Or(p.Pointer, "(root)") + ": " + p.Message + " (" + p.Keyword + ")"
}

// MaxProblems is how many problems an error lists; beyond it, Truncated is set.
const MaxProblems = 20

// ValidationError lists what is wrong with a document.
type ValidationError struct {
	Subject   string // what the document is, as in "task payload of ops.backup"; "": a document
	Problems  []Problem
	Truncated bool // there may be more problems than are listed
}

func (e *ValidationError) Error() string {
	return cmp.Or(e.Subject, "document") + " does not fit its schema: " + summary(e.Problems, e.Truncated)
}

// Strings are the problems, one a line, for the errors array of aee.validate.payload.
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

// Error lists what is wrong with a schema. Its pointers lead into the schema.
type Error struct {
	Subject   string // what the schema is of, as in "task schema of ops.backup"; "": a schema
	Problems  []Problem
	Truncated bool
}

func (e *Error) Error() string {
	return cmp.Or(e.Subject, "schema") + " is refused: " + summary(e.Problems, e.Truncated)
}

// summary shows the first problems: enough to act on, short enough for a log line.
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

// quoted shows a name that the author of the schema or the document chose:
// escaped, and cut to what a line bears.
func quoted(s string) string { return fmt.Sprintf("%q", clip.Text(s, 64)) }
