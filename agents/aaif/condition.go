package aaif

import (
	stdjson "encoding/json"
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Language is an expression language of structured conditions (Condition Expressions).
type Language string

const (
	LangJSONPath  Language = "jsonpath"
	LangJMESPath  Language = "jmespath"
	LangCEL       Language = "cel"
	LangJSONLogic Language = "jsonlogic"
	LangAlways    Language = "always"
	LangNever     Language = "never"
)

// A Condition gates a subagent, a handoff, a trigger or an approval. It has one
// of two forms.
//
// The structured form has a Lang, and all runtimes evaluate it in the same way.
// A runtime without the language treats the condition as unsatisfied (see
// [Negotiate]), and never falls back to NL. The string form has no Lang and
// only a Hint, whose interpretation is up to each runtime.
type Condition struct {
	Lang Language           // "" is the string form
	Expr stdjson.RawMessage // a JSON string, or the rule object of jsonlogic; nil for always and never
	NL   string             // a description in words, for people and logs; never evaluated
	Hint string             // the string form's text
}

// IsString reports whether the condition is in the string form, which MUST NOT
// be relied on for portable routing.
func (c *Condition) IsString() bool { return c.Lang == "" }

// Text is the expression as text: the content of a JSON string, else the JSON
// itself. It is empty for always, for never and for the string form.
func (c *Condition) Text() string {
	if len(c.Expr) == 0 {
		return ""
	}
	var s string
	if json.Unmarshal(c.Expr, &s) == nil {
		return s
	}
	return string(c.Expr)
}

var errNoLang = errors.New("aaif: a condition without a lang")

// structured is the JSON object of the structured form.
type structured struct {
	Lang Language           `json:"lang"`
	Expr stdjson.RawMessage `json:"expr,omitzero"`
	NL   string             `json:"nl,omitzero"`
}

// MarshalJSONTo writes the condition in its form.
func (c *Condition) MarshalJSONTo(enc *jsontext.Encoder) error {
	if c.IsString() {
		return enc.WriteToken(jsontext.String(c.Hint))
	}
	return json.MarshalEncode(enc, structured{c.Lang, c.Expr, c.NL})
}

// UnmarshalJSONFrom reads either form.
func (c *Condition) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch k := dec.PeekKind(); k {
	case '"':
		tok, err := dec.ReadToken()
		if err != nil {
			return err
		}
		*c = Condition{Hint: tok.String()}
		return nil
	case '{':
		var s structured
		if err := json.UnmarshalDecode(dec, &s, json.RejectUnknownMembers(true)); err != nil {
			return err
		}
		if s.Lang == "" {
			return errNoLang // without a lang it would become the string form
		}
		*c = Condition{Lang: s.Lang, Expr: s.Expr, NL: s.NL}
		return nil
	default:
		if _, err := dec.ReadValue(); err != nil {
			return err
		}
		return &typeError{want: "string or object", got: k}
	}
}
