package template

import (
	"fmt"
	"strings"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Limits of a [PayloadError].
const (
	maxKeyProblems      = MaxKeys + 50
	maxPerKey           = 3
	maxShownDescription = 400
	maxErrorText        = 8 << 10
)

// A KeyProblem is one error in one key of a payload.
type KeyProblem struct {
	Key         string `json:"key"`                            // its name; "": the whole payload
	Pointer     string `json:"pointer,omitempty"`              // of the value in the payload
	Rule        string `json:"rule"`                           // "required", "unknown", or a keyword of JSON Schema
	Message     string `json:"message"`                        // what is wrong; contains no value of the payload
	Description string `json:"semantic_description,omitempty"` // of the key, at most 400 bytes
	Remedy      string `json:"remedy,omitempty"`               // what to send instead
}

// PayloadError says why a payload was refused: it lists each wrong key with its rule, its
// description and a remedy, so that a model can repair its call. It contains no value of the
// payload, and its size is bounded.
type PayloadError struct {
	SchemaID  string       `json:"schema_id"`
	Problems  []KeyProblem `json:"problems"`
	Truncated bool         `json:"truncated,omitempty"` // there are more problems than listed
}

// Error lists the problems, one in each line, in at most 8 KiB.
func (e *PayloadError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the payload does not fit the template %s:", e.SchemaID)
	for i, p := range e.Problems {
		line := p.String()
		if b.Len()+len(line) > maxErrorText {
			fmt.Fprintf(&b, "\n  and %d more", len(e.Problems)-i)
			break
		}
		b.WriteString("\n  " + line)
	}
	if e.Truncated {
		b.WriteString("\n  there are more problems than these")
	}
	return b.String()
}

// String returns the problem in one line.
func (p KeyProblem) String() string {
	var b strings.Builder
	switch {
	case p.Key == "":
		b.WriteString("the payload")
	case strings.Count(p.Pointer, "/") > 1:
		b.WriteString(clip.Text(p.Pointer, 200))
	default:
		b.WriteString(visible(p.Key))
	}
	b.WriteString(" " + p.Message)
	if p.Remedy != "" {
		b.WriteString("; " + p.Remedy)
	}
	if p.Description != "" {
		b.WriteString(". " + p.Key + ": " + p.Description)
	}
	return b.String()
}

// names lists the form's keys for a message.
func (f *Form) names() string {
	var b strings.Builder
	for i := range f.keys {
		if f.keys[i].withdrawn {
			continue
		}
		if i > 0 {
			b.WriteString(", ")
		}
		if b.Len() > 600 {
			b.WriteString("…")
			break
		}
		b.WriteString(f.keys[i].Name)
	}
	return b.String()
}
