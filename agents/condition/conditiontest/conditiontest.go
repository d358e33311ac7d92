package conditiontest

import "testing"

// Case is an expression, the JSON value that it is evaluated on, and the
// expected result.
type Case struct {
	Lang, Expr string // jsonlogic's Expr is a rule in JSON; always and never have none
	Data       string
	Want       bool
}

// Truths are cases with a result.
func Truths() []Case {
	return []Case{
		{"always", "", `null`, true},
		{"never", "", `null`, false},
		// jsonpath: true if the query selects any node, whatever its value.
		{"jsonpath", "$.task.type", `{"task":{"type":"code_review"}}`, true},
		{"jsonpath", "$.task.type", `{"task":{"type":false}}`, true},
		{"jsonpath", "$.task.type", `{"task":{"type":null}}`, true},
		{"jsonpath", "$.task.type", `{"task":{}}`, false},
		{"jsonpath", "$[?@.type == 'a']", `{"task":{"type":"a"}}`, true},
		{"jsonpath", "$[?@.type == 'a']", `{"task":{"type":"b"}}`, false},
		// jmespath: empty, false and null are false; 0 is not.
		{"jmespath", "a", `{"a":0}`, true},
		{"jmespath", "a", `{"a":""}`, false},
		{"jmespath", "a", `{"a":[]}`, false},
		{"jmespath", "a", `{"a":{}}`, false},
		{"jmespath", "a", `{"a":false}`, false},
		{"jmespath", "a", `{}`, false},
		{"jmespath", "a", `{"a":" "}`, true},
		// cel: true.
		{"cel", "input.intent == 'billing'", `{"input":{"intent":"billing"}}`, true},
		{"cel", "input.intent == 'billing'", `{"input":{"intent":"sales"}}`, false},
		{"cel", "action == 'opened' || action == 'synchronize'", `{"action":"synchronize"}`, true},
		{"cel", "confidence < 0.8", `{"confidence":0.5}`, true},
		{"cel", "confidence < 1", `{"confidence":1}`, false},
		{"cel", "flag", `{"flag":true}`, true},
		{"cel", "size(input.list) > 1 && input.list.exists(x, x == 3)", `{"input":{"list":[1,3]}}`, true},
		// jsonlogic: 0, "", [], false and null are false.
		{"jsonlogic", `{"var":"a"}`, `{"a":0}`, false},
		{"jsonlogic", `{"var":"a"}`, `{"a":"0"}`, true},
		{"jsonlogic", `{"var":"a"}`, `{"a":[]}`, false},
		{"jsonlogic", `{"var":"a"}`, `{"a":{}}`, true},
		{"jsonlogic", `{"==":[{"var":"a"},"1"]}`, `{"a":1}`, true},
		{"jsonlogic", `true`, `{}`, true},
	}
}

// Errors are cases that must fail: malformed expressions, wrong types, missing
// functions, and evaluations that would not end. Want is false in all of them.
func Errors() []Case {
	return []Case{
		{"jsonpath", "task.type", `{}`, false},
		{"jsonpath", "$[?@.a", `{}`, false},
		{"jsonpath", "$[?length(@) == 1", `{}`, false},
		{"jmespath", "a ||", `{}`, false},
		{"jmespath", "nothing(a)", `{}`, false},
		{"jmespath", "abs(a)", `{"a":"x"}`, false},
		{"cel", "a ==", `{}`, false},
		{"cel", "1 + 2", `{}`, false},
		{"cel", "a", `{"a":"true"}`, false},
		{"cel", "a == 1", `{}`, false},
		{"jsonlogic", `{"nothing":1}`, `{}`, false},
		{"jsonlogic", `{"==":[1,1}`, `{}`, false},
		{"jsonlogic", `{"reduce":[{"var":"l"},{"merge":[{"var":"accumulator"},{"var":"accumulator"}]},[1]]}`, `{"l":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}`, false},
		{"regex", "^a", `{}`, false},
		{"", "true", `{}`, false},
	}
}

// Run tests an evaluator with all cases. eval reports whether the value
// satisfies the condition; the string form of a condition has an empty lang.
func Run(t *testing.T, eval func(lang, expr, data string) (bool, error)) {
	t.Helper()
	for _, c := range Truths() {
		if got, err := eval(c.Lang, c.Expr, c.Data); err != nil || got != c.Want {
			t.Errorf("%s %s on %s: %v, %v, want %v", c.Lang, c.Expr, c.Data, got, err, c.Want)
		}
	}
	for _, c := range Errors() {
		if got, err := eval(c.Lang, c.Expr, c.Data); err == nil || got {
			t.Errorf("%s %s on %s: %v, %v, want an error", c.Lang, c.Expr, c.Data, got, err)
		}
	}
}
