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
	v, err := condition.Facts{Input: json.RawMessage(`{"s":"` + strings.Repeat("a", condition.MaxValue/2) + `","n":9007199254740993` + strings.Repeat("7", 200) + `,"list":[` + strings.Repeat("0,", 1<<15) + `0]}`)}.Exact()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, expr string
		want       error
	}{
		{"an object that doubles", "`1`" + strings.Repeat("|{a:@,b:@}", 20), condition.ErrCost},
		{"a list that doubles", "`1`" + strings.Repeat("|[@,@]", 20), condition.ErrCost},
		{"a large text that doubles", "input.s" + strings.Repeat("|[@,@]", 5), condition.ErrCost},
		{"a long number in each item", "let $n = input.n in input.list[].[$n,$n,$n,$n,$n,$n,$n,$n]", condition.ErrCost},
		{"larger than a value may be", "[input.s,input.s]", condition.ErrTooLarge},
		{"no larger", "[input.s]", nil},
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

// A mapping takes JSON and gives JSON: what it only passes on does not change, also where
// a number has more digits than a double.
func TestQueryKeepsNumbers(t *testing.T) {
	t.Parallel()
	v, err := condition.Facts{
		Input:     json.RawMessage(`{"id":9007199254740993,"list":[{"id":9007199254740995,"w":2},{"id":-9007199254740993,"w":1}],"ids":[3,9007199254740995,9007199254740993],"small":1.50,"pi":3.14159265358979323846,"text":"9007199254740993"}`),
		TaskInput: json.RawMessage(`{"id":18446744073709551615}`),
		Outputs:   map[string]json.RawMessage{"a": json.RawMessage(`{"id":1e-400}`)},
		Variables: json.RawMessage(`{"id":9007199254740997}`),
	}.Exact()
	if err != nil {
		t.Fatal(err)
	}
	for expr, want := range map[string]string{
		"{id: input.id, p: input.pi, s: input.small}":          `{"id":9007199254740993,"p":3.14159265358979323846,"s":1.5}`,
		"{t: task_input.id, o: outputs.a.id, v: variables.id}": `{"o":1e-400,"t":18446744073709551615,"v":9007199254740997}`,
		"input.list[].id":                                                                        `[9007199254740995,-9007199254740993]`,
		"input.list[?id > `0`].id":                                                               `[9007199254740995]`,
		"input.list[?id == `9007199254740995`].id":                                               `[9007199254740995]`,
		"[not_null(input.none, input.id), to_number(input.text)]":                                `[9007199254740993,9007199254740993]`,
		"merge(input.list[0], {x: input.id})":                                                    `{"id":9007199254740995,"w":2,"x":9007199254740993}`,
		"map(&id, input.list)":                                                                   `[9007199254740995,-9007199254740993]`,
		"sort_by(input.list, &id)[].id":                                                          `[-9007199254740993,9007199254740995]`,
		"[max_by(input.list, &id).id, min_by(input.list, &id).w]":                                `[9007199254740995,1]`,
		"[max(input.ids), min(input.ids), sort(input.ids)[2]]":                                   `[9007199254740995,3,9007199254740995]`,
		"[type(input.id), to_string(input.id), to_string(input.list[0])]":                        `["number","9007199254740993","{\"id\":9007199254740995,\"w\":2}"]`,
		"[contains(input.ids, input.list[0].id), input.id == task_input.id]":                     `[true,false]`,
		"[input.list[0] == input.list[0], input.list[0] == input.list[1]]":                       `[true,false]`,
		"[abs(input.list[1].id) > `9e15`, input.id - `1`, -input.id, sum(input.ids) > `1.8e16`]": `[true,9007199254740991,-9007199254740992,true]`,
		"values(input.list[1])":                                                                  `[-9007199254740993,1]`,
		"zip(input.ids, [input.id])":                                                             `[[3,9007199254740993]]`,
	} {
		q, err := condition.CompileQuery(condition.Expression(aaif.LangJMESPath, expr), condition.Options{})
		if err != nil {
			t.Fatal(expr, err)
		}
		if got, err := q.Result(t.Context(), v); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", expr, got, err, want)
		}
	}
	if _, err := (condition.Facts{Input: json.RawMessage(`{"n":1e400}`)}).Exact(); !errors.Is(err, condition.ErrValue) {
		t.Errorf("a number beyond a double: %v", err)
	}
}
