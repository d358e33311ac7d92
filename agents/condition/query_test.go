package condition_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

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

// A result costs what its text has, also where its parts are one value: 300 bytes of
// expression would else make a text that no memory holds.
func TestAQueryPaysForItsResult(t *testing.T) {
	t.Parallel()
	v, err := condition.Parse([]byte(`{"s":"` + strings.Repeat("a", condition.MaxValue/2) + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, expr string
		want       error
	}{
		{"an object that doubles", "`1`" + strings.Repeat("|{a:@,b:@}", 20), condition.ErrCost},
		{"a list that doubles", "`1`" + strings.Repeat("|[@,@]", 20), condition.ErrCost},
		{"a large text that doubles", "s" + strings.Repeat("|[@,@]", 5), condition.ErrCost},
		{"larger than a value may be", "[s,s]", condition.ErrTooLarge},
		{"no larger", "[s]", nil},
		{"no JSON", "{n: `0`/`0`}", condition.ErrEval},
	} {
		q, err := condition.CompileQuery(condition.Expression(aaif.LangJMESPath, tt.expr), condition.Options{Timeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Result(t.Context(), v); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}
