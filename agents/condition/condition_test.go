package condition_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
)

func mustParse(t testing.TB, text string) condition.Value {
	t.Helper()
	v, err := condition.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// eval compiles and evaluates in one go.
func eval(t testing.TB, lang aaif.Language, expr, data string) (bool, error) {
	t.Helper()
	p, err := condition.Compile(condition.Expression(lang, expr), condition.Options{})
	if err != nil {
		return false, err
	}
	return p.Eval(context.Background(), mustParse(t, data))
}

// The truth rules of the draft (Condition Expressions), language by language.
func TestTruth(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		lang       aaif.Language
		expr, data string
		want       bool
	}{
		{aaif.LangAlways, "", `null`, true},
		{aaif.LangNever, "", `null`, false},
		// jsonpath: non-empty, whatever is in it.
		{aaif.LangJSONPath, "$.task.type", `{"task":{"type":"code_review"}}`, true},
		{aaif.LangJSONPath, "$.task.type", `{"task":{"type":false}}`, true},
		{aaif.LangJSONPath, "$.task.type", `{"task":{"type":null}}`, true},
		{aaif.LangJSONPath, "$.task.type", `{"task":{}}`, false},
		{aaif.LangJSONPath, "$[?@.type == 'a']", `{"task":{"type":"a"}}`, true},
		{aaif.LangJSONPath, "$[?@.type == 'a']", `{"task":{"type":"b"}}`, false},
		// jmespath: empty, false and null are false; 0 is not.
		{aaif.LangJMESPath, "a", `{"a":0}`, true},
		{aaif.LangJMESPath, "a", `{"a":""}`, false},
		{aaif.LangJMESPath, "a", `{"a":[]}`, false},
		{aaif.LangJMESPath, "a", `{"a":{}}`, false},
		{aaif.LangJMESPath, "a", `{"a":false}`, false},
		{aaif.LangJMESPath, "a", `{}`, false},
		{aaif.LangJMESPath, "a", `{"a":" "}`, true},
		// cel: true.
		{aaif.LangCEL, "input.intent == 'billing'", `{"input":{"intent":"billing"}}`, true},
		{aaif.LangCEL, "input.intent == 'billing'", `{"input":{"intent":"sales"}}`, false},
		{aaif.LangCEL, "action == 'opened' || action == 'synchronize'", `{"action":"synchronize"}`, true},
		{aaif.LangCEL, "confidence < 0.8", `{"confidence":0.5}`, true},
		{aaif.LangCEL, "confidence < 1", `{"confidence":1}`, false},
		{aaif.LangCEL, "flag", `{"flag":true}`, true},
		{aaif.LangCEL, "size(input.list) > 1 && input.list.exists(x, x == 3)", `{"input":{"list":[1,3]}}`, true},
		// jsonlogic: 0, "", [], false and null are false.
		{aaif.LangJSONLogic, `{"var":"a"}`, `{"a":0}`, false},
		{aaif.LangJSONLogic, `{"var":"a"}`, `{"a":"0"}`, true},
		{aaif.LangJSONLogic, `{"var":"a"}`, `{"a":[]}`, false},
		{aaif.LangJSONLogic, `{"var":"a"}`, `{"a":{}}`, true},
		{aaif.LangJSONLogic, `{"==":[{"var":"a"},"1"]}`, `{"a":1}`, true},
		{aaif.LangJSONLogic, `true`, `{}`, true},
	} {
		got, err := eval(t, tt.lang, tt.expr, tt.data)
		if err != nil || got != tt.want {
			t.Errorf("%s %s on %s: %v, %v, want %v", tt.lang, tt.expr, tt.data, got, err, tt.want)
		}
	}
}

func TestAHintIsNeverEvaluated(t *testing.T) {
	t.Parallel()
	p, err := condition.Compile(aaif.Condition{Hint: "true"}, condition.Options{})
	if err != nil || !p.Hint() {
		t.Fatal(p, err)
	}
	if ok, err := p.Eval(context.Background(), mustParse(t, `{}`)); ok || !errors.Is(err, condition.ErrHint) {
		t.Errorf("%v, %v", ok, err)
	}
}

func TestAnUnknownLanguageIsRefused(t *testing.T) {
	t.Parallel()
	_, err := condition.Compile(aaif.Condition{Lang: "regex", Expr: json.RawMessage(`"^a"`), NL: "begins with a"}, condition.Options{})
	if !errors.Is(err, condition.ErrLanguage) || err.Error() != "regex: this runtime does not evaluate the language" {
		t.Error(err)
	}
}
