package aaif

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/envelope/sorted"
)

// Severity says how serious a problem is.
type Severity string

const (
	SeverityError   Severity = "error"   // the document is refused
	SeverityWarning Severity = "warning" // the document is accepted; its author should know
	SeverityNote    Severity = "note"    // nothing is wrong, but it may interest the agent's operator
)

// Rule names the rule that a problem violates, for programs and for searching
// the documentation.
type Rule string

// maxProblems bounds how many problems of one document are listed, for
// documents with very many.
const maxProblems = 1000

// Rules about the encoding. A violation makes the document unreadable, so that
// nothing else is checked.
const (
	RuleSyntax        Rule = "syntax"         // not well-formed JSON, YAML or CBOR
	RuleTooLarge      Rule = "too-large"      // more bytes than Options.MaxBytes
	RuleTooDeep       Rule = "too-deep"       // nested deeper than Options.MaxDepth
	RuleEncoding      Rule = "encoding"       // text that is not UTF-8
	RuleDuplicateName Rule = "duplicate-name" // an object with the same name twice
	RuleNumberRange   Rule = "number-range"   // a number beyond the range of an IEEE 754 double
	RuleYAML          Rule = "yaml"           // YAML that JSON cannot express: anchors, tags, several documents, …
	RuleCBOR          Rule = "cbor"           // CBOR that JSON cannot express: byte strings, tags, integer keys, …
)

// Rules of the schemas, by their JSON Schema keywords.
const (
	RuleRequired     Rule = "required"      // a field is missing
	RuleUnknownField Rule = "unknown-field" // a field that the schema does not have
	RuleType         Rule = "type"          // a value of the wrong JSON type
	RuleEnum         Rule = "enum"          // a value outside the vocabulary
	RuleConst        Rule = "const"         // sc_standard is not SC-006
	RulePattern      Rule = "pattern"       // a version or a tool name of the wrong form
	RuleRange        Rule = "range"         // a number below its minimum or above its maximum
	RuleLength       Rule = "length"        // a string or an array too short or too long
	RuleUnique       Rule = "unique"        // an array with the same item twice
	RuleSchema       Rule = "schema"        // any other keyword
)

// RuleKind is violated by a document of another kind than Options.Kind
// requires. It is then the only problem.
const RuleKind Rule = "kind"

// RuleTooMany is the last entry of a list of problems that was cut off.
const RuleTooMany Rule = "too-many"

// RuleSecret is violated by a document that contains a credential (Security
// Considerations: such a document MUST be rejected).
const RuleSecret Rule = "inline-secret"

// Rules of the linter. All are warnings.
const (
	RuleStringCondition Rule = "string-condition" // a condition in words, which runtimes interpret differently
	RuleDeprecated      Rule = "deprecated"       // the agent is retired
	RuleVersion         Rule = "version"          // written for a later AAIF than this package knows
	RuleID              Rule = "id"               // an id that is no UUID
	RuleFormat          Rule = "format"           // a time or a URI of the wrong form
	RuleEntity          Rule = "entity"           // a name that gives no entity id
	RuleRegistry        Rule = "registry"         // a provider or capability that is not registered
	RuleReference       Rule = "reference"        // an alias that no subagent has
	RuleIgnoredField    Rule = "ignored-field"    // a field without effect next to the others
	RuleIncomplete      Rule = "incomplete"       // a field that requires another one
	RuleSubschema       Rule = "subschema"        // an embedded JSON Schema that does not compile
)

// RuleNotHonoured is the rule of the problems of [NotHonoured].
const RuleNotHonoured Rule = "not-honoured"

// RuleCapability and RuleConditionLanguage are the rules of the problems of
// [Negotiation.Problems].
const (
	RuleCapability        Rule = "capability"
	RuleConditionLanguage Rule = "condition-language"
)

// A Problem is one error in a document, or something that its author should
// know.
//
// Messages never quote a value that looks like a credential.
type Problem struct {
	Pointer  string   `json:"pointer"` // RFC 6901; "" is the document; for a missing field it is the object that lacks it
	Rule     Rule     `json:"rule"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitzero"`
	Line     int      `json:"line,omitzero"`   // from 1, in JSON and YAML; 0: unknown
	Column   int      `json:"column,omitzero"` // from 1, in characters; 0: unknown
}

// String returns the problem in one line: place, message, hint.
func (p Problem) String() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d: ", p.Line, p.Column)
	}
	if p.Pointer != "" {
		b.WriteString(p.Pointer)
		b.WriteString(": ")
	}
	if p.Severity == SeverityWarning {
		b.WriteString("warning: ")
	}
	b.WriteString(p.Message)
	if p.Hint != "" {
		b.WriteString(" (")
		b.WriteString(p.Hint)
		b.WriteString(")")
	}
	return b.String()
}

// Error is the reason why a document was refused. It holds at least one problem
// of [SeverityError].
type Error struct {
	Name     string    // the document's origin; may be empty
	Kind     Kind      // the document's kind if it differs from Options.Kind; else ""
	Problems []Problem // sorted, errors only
}

// maxPrinted bounds how many problems the text of an Error lists.
const maxPrinted = 20

// Error names the document and its problems, one per line if there are several.
func (e *Error) Error() string {
	name := cmp.Or(e.Name, "AAIF document")
	if len(e.Problems) == 1 {
		p := e.Problems[0]
		sep := ": "
		if p.Line > 0 && e.Name != "" {
			sep = ":" // file:line:column, which editors recognise
		}
		return name + sep + p.String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d problems", name, len(e.Problems))
	for i, p := range e.Problems {
		if i == maxPrinted {
			fmt.Fprintf(&b, "\n  and %d more", len(e.Problems)-i)
			break
		}
		b.WriteString("\n  ")
		b.WriteString(p.String())
	}
	return b.String()
}

// errorf makes a problem of SeverityError.
func errorf(pointer string, rule Rule, format string, args ...any) Problem {
	return Problem{Pointer: pointer, Rule: rule, Severity: SeverityError, Message: fmt.Sprintf(format, args...)}
}

// warnf makes a problem of SeverityWarning.
func warnf(pointer string, rule Rule, format string, args ...any) Problem {
	return Problem{Pointer: pointer, Rule: rule, Severity: SeverityWarning, Message: fmt.Sprintf(format, args...)}
}

// hint returns the problem with a hint.
func (p Problem) hint(format string, args ...any) Problem {
	p.Hint = fmt.Sprintf(format, args...)
	return p
}

// sortProblems sorts by severity, errors first, then by place, rule and
// message, removes duplicates, and cuts off a list that is too long.
func sortProblems(ps []Problem) []Problem {
	sorted.By(ps, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.Severity, b.Severity), // "error" < "warning"
			comparePointers(a.Pointer, b.Pointer),
			cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.Message, b.Message),
		)
	})
	ps = slices.Compact(ps)
	if len(ps) > maxProblems {
		ps = append(ps[:maxProblems:maxProblems], Problem{
			Rule: RuleTooMany, Severity: ps[0].Severity, Message: "there are more problems than these",
		})
	}
	return ps
}

// comparePointers orders JSON pointers token by token, array indexes by value.
func comparePointers(a, b string) int {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	return slices.CompareFunc(as, bs, func(x, y string) int {
		i, errx := strconv.Atoi(x)
		j, erry := strconv.Atoi(y)
		if errx == nil && erry == nil {
			return cmp.Compare(i, j)
		}
		return cmp.Compare(x, y)
	})
}

// child returns the pointer of a member or an item of the value at pointer.
func child[T string | int](pointer string, key T) string {
	switch key := any(key).(type) {
	case string:
		return string(jsontext.Pointer(pointer).AppendToken(key))
	default:
		return pointer + "/" + strconv.Itoa(key.(int))
	}
}
