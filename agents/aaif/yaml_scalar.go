package aaif

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

func (c *yamlConverter) scalar(n ast.ScalarNode, at *token.Token, pointer string) *Problem {
	tk := n.GetToken()
	if s, ok := n.(*ast.StringNode); ok && quoted(tk) {
		return c.write(jsontext.String(s.Value), at, pointer)
	}
	if p := tabLost(tk, pointer); p != nil {
		return p
	}
	if tk.Type == token.ImplicitNullType {
		return c.write(jsontext.Null, at, pointer)
	}
	text := tk.Value
	switch kind := plainKind(text); {
	case kind == plainNull:
		return c.write(jsontext.Null, at, pointer)
	case kind == plainTrue:
		return c.write(jsontext.True, at, pointer)
	case kind == plainFalse:
		return c.write(jsontext.False, at, pointer)
	case kind == plainNumber:
		if err, ok := checkNumber(text); !ok {
			p := yamlErrorf(at, pointer, err.rule, "%s", err.message)
			return &p
		}
		if err := c.enc.WriteValue(jsontext.Value(text)); err != nil {
			p := yamlErrorf(at, pointer, RuleSyntax, "not JSON: %v", err)
			return &p
		}
		return nil
	case kind == plainString && tk.Type == token.StringType:
		return c.write(jsontext.String(text), at, pointer)
	}
	// YAML has more forms of numbers than JSON, and its versions disagree about
	// them.
	p := yamlErrorf(at, pointer, RuleYAML, "%s is no JSON number", clip.Text(text, 60)).
		hint("write it in plain decimals, or quote it if it is text")
	return &p
}

// tabLost refuses a tab within a text without quotes: the scanner drops it, and reads 1, tab, 2 as
// 12.
func tabLost(tk *token.Token, pointer string) *Problem {
	if quoted(tk) || !strings.Contains(tk.Origin, "\t") {
		return nil
	}
	for line := range strings.Lines(tk.Origin) {
		if strings.Contains(strings.Trim(line, " \t\n"), "\t") {
			p := yamlErrorf(tk, pointer, RuleYAML, "a tab within a text without quotes").hint("write the text in quotes, or a space instead of the tab")
			return &p
		}
	}
	return nil
}

// quoted reports whether a scalar is in quotes, and so is a string.
func quoted(tk *token.Token) bool {
	return tk.Type == token.DoubleQuoteType || tk.Type == token.SingleQuoteType
}

// plainScalar is the type of a scalar without quotes.
type plainScalar int

const (
	plainString plainScalar = iota
	plainNull
	plainTrue
	plainFalse
	plainNumber
	plainOther // a number in YAML, but not in JSON
)

var (
	jsonNumber = pattern.Of(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
	yamlNumber = pattern.Of(`^([-+]?(\.[0-9_]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|0o[0-7_]+|[-+]?0[xX][0-9a-fA-F_]+|[-+]?0b[01_]+|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)
)

func plainKind(text string) plainScalar {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return plainNull
	case "true", "True", "TRUE":
		return plainTrue
	case "false", "False", "FALSE":
		return plainFalse
	}
	if c := text[0]; c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' {
		if jsonNumber.RE().MatchString(text) {
			return plainNumber
		}
		if yamlNumber.RE().MatchString(text) {
			return plainOther
		}
	}
	return plainString
}
