package condition_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
)

func TestQueryMakesAValue(t *testing.T) {
	t.Parallel()
	v, err := condition.Facts{
		Input:     json.RawMessage(`{"text":"now","outputs":"forged"}`),
		TaskInput: json.RawMessage(`{"text":"first"}`),
		Outputs:   map[string]json.RawMessage{"lint": json.RawMessage(`{"notes":[1,2]}`)},
		Variables: json.RawMessage(`{"tone":"dry"}`),
	}.Value()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		expr, want string
		err        error
	}{
		{"{text: task_input.text, notes: outputs.lint.notes, tone: variables.tone}", `{"notes":[1,2],"text":"first","tone":"dry"}`, nil},
		{"input.outputs", `"forged"`, nil},
		{"nothing.there", `null`, nil},
		{"{a: ", "", condition.ErrSyntax},
		{"abs(input)", "", condition.ErrEval},
	} {
		q, err := condition.CompileQuery(condition.Expression(aaif.LangJMESPath, tt.expr), condition.Options{})
		var got json.RawMessage
		if err == nil {
			got, err = q.Result(t.Context(), v)
		}
		if string(got) != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %s, %v; want %s, %v", tt.expr, got, err, tt.want, tt.err)
		}
	}
}

func TestQueryIsJMESPath(t *testing.T) {
	t.Parallel()
	for _, c := range []aaif.Condition{condition.Expression(aaif.LangCEL, "1"), {Lang: aaif.LangAlways}, {}} {
		if _, err := condition.CompileQuery(c, condition.Options{}); !errors.Is(err, condition.ErrLanguage) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
