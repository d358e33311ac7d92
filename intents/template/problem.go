package template

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// A Problem is one error in a template, a patch or a payload envelope.
type Problem struct {
	Pointer string `json:"pointer"` // JSON pointer (RFC 6901) of the value; "": the whole document
	Rule    string `json:"rule"`    // the violated rule: a keyword of JSON Schema, or a word such as "unique"
	Message string `json:"message"` // what is wrong; contains names and types, never long values
	Remedy  string `json:"remedy,omitempty"`
}

// String returns the problem in one line: place, message, remedy.
func (p Problem) String() string {
	text := cmp.Or(p.Pointer, "(root)") + ": " + p.Message
	if p.Remedy != "" {
		text += " (" + p.Remedy + ")"
	}
	return text
}

// MaxProblems bounds the problems that an [Error] lists; beyond it, Truncated is set.
const MaxProblems = 100

// Error lists all problems of one document.
type Error struct {
	Subject   string // what the document is, for instance a file's name; "": a template
	Problems  []Problem
	Truncated bool // there are more problems than listed
}

// Error lists the first twenty problems, one in each line.
func (e *Error) Error() string {
	const shown = 20
	var b strings.Builder
	b.WriteString(cmp.Or(e.Subject, "template") + " is refused:")
	for i, p := range e.Problems {
		if i == shown {
			fmt.Fprintf(&b, "\n  and %d more", len(e.Problems)-shown)
			break
		}
		if len(e.Problems) > 1 {
			b.WriteString("\n ")
		}
		b.WriteString(" " + p.String())
	}
	if e.Truncated {
		b.WriteString("\n  there are more problems than these")
	}
	return b.String()
}

// A report collects the problems of one document.
type report struct {
	problems  []Problem
	truncated bool
}

func (r *report) add(pointer, rule, remedy, format string, args ...any) {
	if len(r.problems) >= MaxProblems {
		r.truncated = true
		return
	}
	r.problems = append(r.problems, Problem{Pointer: clip.Text(pointer, 300), Rule: rule, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

// err returns the problems as an error, nil if there are none.
func (r *report) err(subject string) error {
	if len(r.problems) == 0 {
		return nil
	}
	return &Error{Subject: subject, Problems: r.problems, Truncated: r.truncated}
}

// within reports whether there is a problem at pointer or below it.
func (r *report) within(pointer string) bool {
	return slices.ContainsFunc(r.problems, func(p Problem) bool {
		rest, ok := strings.CutPrefix(p.Pointer, pointer)
		return ok && (rest == "" || rest[0] == '/')
	})
}

// structure adds the problems that a JSON Schema of this package finds in raw. It reports whether
// raw can be decoded: it is JSON without duplicate names, and within the limits.
func (r *report) structure(s *schema.Schema, raw []byte, under string) bool {
	if len(raw) == 0 {
		r.add("", "json", remedies["json"], "is empty")
		return false
	}
	if bytes.HasPrefix(raw, []byte("\ufeff")) {
		r.add("", "json", "save it as UTF-8 without one", "begins with a byte order mark")
		return false
	}
	problems, truncated := s.Examine(raw, MaxProblems)
	r.truncated = r.truncated || truncated
	for _, p := range problems {
		switch p.Keyword {
		case "json", "limit", "number":
			r.add(under+p.Pointer, p.Keyword, remedies[p.Keyword], "%s", p.Message)
			return false
		}
		r.add(under+p.Pointer, p.Keyword, remedyAt(p), "%s", p.Message)
	}
	return true
}

// remedyAt returns the remedy for a problem that a schema of this package has found.
func remedyAt(p schema.Problem) string {
	switch p.Keyword {
	case "required":
		if strings.HasPrefix(p.Pointer, "/keys/") || strings.HasPrefix(p.Pointer, "/new_keys/") || p.Place == "/$defs/key" {
			return "every key has key_name, key_type, semantic_description and required"
		}
		return "add it"
	case "additionalProperties":
		return "a patch adds keys and improves descriptions; nothing else can be changed"
	}
	last := p.Pointer[strings.LastIndexByte(p.Pointer, '/')+1:]
	if strings.Contains(p.Pointer, "/semantic_descriptions/") {
		last = "semantic_description"
	}
	return cmp.Or(remedies[last], remedies[p.Keyword])
}

// remedies are the remedies, by the wrong member or by the violated rule.
var remedies = map[string]string{
	"schema_id":             "a letter or digit, then up to 127 letters, digits and . _ : / @ + -, for instance flight_booking_v1",
	"patch_id":              "a letter or digit, then up to 127 letters, digits and . _ : / @ + -",
	"parent_schema_id":      "write the schema_id of the template that the patch belongs to",
	"scenario":              "name the scenario in 1 to 128 characters, for instance flight_booking",
	"description":           "say in at most 4000 characters what the scenario is for",
	"language":              "write a BCP 47 tag such as en or pt-BR",
	"keys":                  "list at most 200 key definitions",
	"response_schema":       "write a JSON Schema as an object",
	"key_name":              "use snake_case: lower-case ASCII letters, digits and single _, at most 64 characters, for instance departure_date",
	"key_type":              "use one of string, integer, number, boolean, array, object, null",
	"semantic_description":  "explain the key in 1 to 4000 characters: its meaning, the values, and an example of words and their value",
	"semantic_descriptions": `write an object such as {"de": "…"} with at most 40 languages`,
	"required":              "write true or false",
	"value_schema":          "write a JSON Schema as an object",
	"property":              "write the property's name in the agent's own schema, at most 128 characters",
	"experimental":          "write true or false",
	"deprecated":            "write true or false",
	"timestamp":             "write an RFC 3339 time such as 2031-05-04T09:30:00Z",
	"expiration":            "write an RFC 3339 time such as 2031-06-03T09:30:00Z",
	"new_keys":              "list at most 50 key definitions",
	"modified_keys":         "list at most 50 objects of key_name and semantic_description",
	"payload":               "write an object of keys and values",
	"json":                  "write one JSON value in UTF-8, each member once",
	"limit":                 "make it smaller",
	"number":                "write a smaller number",
	"type":                  "write a value of that type",
}

func at(pointer string, token any) string {
	switch token := token.(type) {
	case int:
		return pointer + "/" + strconv.Itoa(token)
	default:
		return string(jsontext.Pointer(pointer).AppendToken(clip.Text(fmt.Sprint(token), 100)))
	}
}

// quoted escapes and shortens a name for a message.
func quoted(s string) string { return fmt.Sprintf("%q", clip.Text(s, 64)) }
