package condition_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
	"github.com/aeemesh/aeemesh/agents/condition/conditiontest"
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
	conditiontest.Run(t, func(lang, expr, data string) (bool, error) {
		if lang == "" {
			p, err := condition.Compile(aaif.Condition{Hint: expr}, condition.Options{})
			if err != nil {
				return false, err
			}
			return p.Eval(context.Background(), mustParse(t, data))
		}
		return eval(t, aaif.Language(lang), expr, data)
	})
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
