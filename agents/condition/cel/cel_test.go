package cel

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/condition/limit"
)

func eval(t testing.TB, expr, data string) (bool, error) {
	t.Helper()
	p, err := Compile(expr, 1e6)
	if err != nil {
		return false, err
	}
	var v any
	if err := json.Unmarshal([]byte(data), &v); err != nil {
		t.Fatal(err)
	}
	return p.Eval(context.Background(), v)
}

const order = `{"input":{"amount":250,"tags":["a","b"],"who":{"name":"Ann"},"at":"2026-11-20T09:30:00Z","none":null},"n":3,"class_":1,"x":{"z":1,"a":2,"k":3}}`

func TestEval(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]bool{
		"input.amount > 100":                                      true, // comparisons take both kinds of number
		"input.amount > 100.5":                                    true,
		"input.amount + 1.0 == 251.0":                             true,
		"int(input.amount) % 2 == 0":                              true,
		"input.tags[1] == 'b'":                                    true,
		"input.tags[int(n) - 2] == 'b'":                           true,
		"'b' in input.tags":                                       true,
		"size(input.tags) == 2":                                   true,
		"has(input.who.name) && !has(input.who.age)":              true,
		"'name' in input.who":                                     true,
		"input.who == {'name': 'Ann'}":                            true,
		"input.none == null":                                      true,
		"input.tags == ['a', 'b']":                                true,
		"input.tags.exists_one(t, t == 'a')":                      true,
		"input.tags.filter(t, t > 'a').size() == 1":               true,
		"timestamp(input.at) < timestamp('2027-01-01T00:00:00Z')": true,
		"duration('1h') > duration('59m')":                        true,
		"input.who.name.matches('^A.+$')":                         true,
		"input['amount'] == 250.0":                                true,
		"type(n) == double":                                       true,
		"true || absent":                                          true, // what does not matter need not be there
		"absent || true":                                          true,
		"false && absent":                                         false,
		"x.map(k, k) == ['a', 'k', 'z']":                          true, // members by name
		"x.map(k, x[k])[0] == 2.0":                                true,
		"input.map(k, k)[0] == 'amount'":                          true,
		"dyn(n) == 3 ? true : false":                              true,
		"[1, 2].all(i, i < n)":                                    true,
		"string(n) == '3'":                                        true,
		"b'abc' == bytes('abc')":                                  true,
		"'é😀'.size() == 2":                                        true,
	} {
		if got, err := eval(t, expr, order); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", expr, got, err, want)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"":                     "more is expected than this",
		"1 +":                  "at 1:4: more is expected than this",
		"1 + 'a' == 2":         "at 1:3: found no matching overload for '_+_' applied to '(int, string)'",
		"nothing(1)":           "at 1:8: undeclared reference to 'nothing'",
		"1 + 2":                "a condition is true or false, and this is of type int",
		"'true'":               "a condition is true or false, and this is of type string",
		"n":                    "a condition is true or false, and this is of type double",
		"absent":               "no such attribute(s): absent",
		"input.absent":         "no such key: absent",
		"input.amount + 1 > 1": "no such overload (the numbers of JSON are doubles: write 1.0, or int(x))",
		"1 / 0 == 1":           "division by zero",
		"input.tags[5] == 'a'": "index out of bounds: 5",
		"input.who && true":    "no such overload (the numbers of JSON are doubles: write 1.0, or int(x))",
	} {
		got, err := eval(t, expr, order)
		if got || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %s", expr, got, err, want)
		}
	}
}

// What is in a value is in no error, though CEL would quote it.
func TestErrorsKeepNoPartOfTheValue(t *testing.T) {
	t.Parallel()
	const secret = `{"s":"hunter2","m":{},"l":[],"n":4711}`
	for _, expr := range []string{
		"m[s]", "int(s) > 1", "double(s) > 1.0", "timestamp(s) > timestamp(s)", "duration(s) > duration(s)", "l[int(n)]", "s.matches(s + '(')", "bool(s)", "uint(s) > 1u", "s.getFullYear() > 1", "s", "{s: 1}[s] == m[s]",
	} {
		got, err := eval(t, expr, secret)
		if got || err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "4711") {
			t.Errorf("%s: %v, %v", expr, got, err)
		}
	}
}

func TestAValueThatIsNoObject(t *testing.T) {
	t.Parallel()
	for _, data := range []string{`[]`, `1`, `"a"`} {
		if _, err := eval(t, "true", data); !errors.Is(err, ErrNoObject) {
			t.Errorf("%s: %v", data, err)
		}
	}
	if ok, err := eval(t, "true", `null`); !ok || err != nil {
		t.Error(ok, err)
	}
}

// What CEL itself counts as one unit costs what it makes and reads.
func TestSizesCost(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("a", 80_000)
	value := map[string]any{"s": text, "l": []any{text, map[string]any{"k": text}}}
	for expr, fits := range map[string]bool{
		"s != ''":                          true,
		"s == 'a'":                         true,
		"size(s) > 1":                      false,
		"s + s == ''":                      false,
		"s == s":                           false,
		"l == l":                           false,
		"'b' in l":                         false,
		"s < s":                            false,
		"s.startsWith('a')":                true,
		"l + l + l == []":                  true, // a view of its parts
		"[s, s].exists(x, x + 'b' == 'b')": false,
	} {
		p, err := Compile(expr, 9_000)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Eval(context.Background(), value); errors.Is(err, limit.ErrCost) == fits {
			t.Errorf("%s: %v, fits %v", expr, err, fits)
		}
	}
}
