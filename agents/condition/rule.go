package condition

import (
	stdjson "encoding/json"
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// ruleOf returns the rule of a jsonlogic condition: the JSON of expr. If expr
// is a text, which the schema permits, and the text is an array or an object,
// that is the rule; any other text is a literal, as every scalar is in
// JsonLogic.
func ruleOf(c aaif.Condition) ([]byte, error) {
	if len(c.Expr) == 0 {
		return nil, errors.New("the rule is missing")
	}
	if jsontext.Value(c.Expr).Kind() != '"' {
		return c.Expr, nil
	}
	text := strings.TrimSpace(c.Text())
	switch {
	case !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "["):
		return c.Expr, nil
	case !jsontext.Value(text).IsValid():
		return nil, errors.New("the rule is written as text, and the text is no JSON")
	}
	return []byte(text), nil
}

// Expression makes the expr of a condition from text of a command line: a JSON
// string for all languages but jsonlogic, whose rule is JSON.
func Expression(lang aaif.Language, text string) aaif.Condition {
	c := aaif.Condition{Lang: lang}
	switch {
	case lang == aaif.LangAlways || lang == aaif.LangNever:
	case lang == aaif.LangJSONLogic && jsontext.Value(text).IsValid():
		c.Expr = stdjson.RawMessage(text)
	default:
		c.Expr, _ = jsontext.AppendQuote(nil, text)
	}
	return c
}
