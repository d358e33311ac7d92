package intents

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinels that callers branch on.
var (
	// ErrUnknownIntent says that a registry has never heard of an intent.
	// Whether such a task is served or refused is the caller's policy: the
	// draft says that the absence of a recognised intent is no error.
	ErrUnknownIntent = errors.New("unknown intent")
	// ErrReserved says that an application asked for a name under "aee." or "mesh.".
	ErrReserved = errors.New("reserved intent name")
	// ErrRegistered says that an intent is registered already; see [Registry.Replace].
	ErrRegistered = errors.New("intent is registered already")
)

// NameError says why a name cannot be an application's intent. Where the name
// is legal but reserved, errors.Is(err, [ErrReserved]) holds.
type NameError struct {
	Intent string // as given; the message shows no more than its beginning
	Reason string
	cause  error
}

func (e *NameError) Error() string { return fmt.Sprintf("intent %s: %s", quoted(e.Intent), e.Reason) }

func (e *NameError) Unwrap() error { return e.cause }

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
	where := p.Pointer
	if where == "" {
		where = "(root)"
	}
	return where + ": " + p.Message + " (" + p.Keyword + ")"
}

// MaxProblems is how many problems an error lists; beyond it, Truncated is set.
const MaxProblems = 20

// ValidationError lists what is wrong with a payload.
type ValidationError struct {
	Intent    string  // "" where a bare [Schema] was asked
	Variant   Variant // "" likewise
	Problems  []Problem
	Truncated bool // there may be more problems than are listed
}

func (e *ValidationError) Error() string {
	subject := "document"
	if e.Intent != "" {
		subject = fmt.Sprintf("%s payload of %s", e.Variant, e.Intent)
	}
	return subject + " does not fit its schema: " + summary(e.Problems, e.Truncated)
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

// SchemaError lists what is wrong with a schema. Its pointers lead into the schema.
type SchemaError struct {
	Intent    string  // "" where a bare schema was compiled
	Variant   Variant // "" likewise
	Problems  []Problem
	Truncated bool
}

func (e *SchemaError) Error() string {
	subject := "schema"
	if e.Intent != "" {
		subject = fmt.Sprintf("%s schema of %s", e.Variant, e.Intent)
	}
	return subject + " is refused: " + summary(e.Problems, e.Truncated)
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

// quoted shows a name that somebody else chose: escaped, and no longer than
// a line bears.
func quoted(s string) string { return fmt.Sprintf("%q", clip(s, 64)) }

// clip cuts s to at most n bytes, at a rune's edge, and marks the cut.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}
