package jmespath

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/aeemesh/aeemesh/agents/condition/limit"
)

const people = `{"p":[{"n":"Ann","a":30,"t":["x"]},{"n":"Bob","a":20,"t":[]},{"n":"Cy","a":null}],"m":{"z":1,"a":2,"k":3},"s":"héllo","b":false,"num":"12"}`

func search(t testing.TB, expr string) (any, error) {
	t.Helper()
	p, err := Compile(expr)
	if err != nil {
		return nil, err
	}
	var v, before any
	if err := json.Unmarshal([]byte(people), &v); err != nil {
		t.Fatal(err)
	}
	json.Unmarshal([]byte(people), &before)
	out, err := limit.Run(context.Background(), 1e6, func(b *limit.Budget) (any, error) { return p.Search(b, v) })
	if !reflect.DeepEqual(v, before) {
		t.Errorf("%s changes the value", expr)
	}
	return out, err
}

func TestSearch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ expr, want string }{
		{"p[0].n", `"Ann"`}, {"p[-1].n", `"Cy"`}, {"p[9]", `null`}, {"p.n", `null`}, {"@.s", `"héllo"`}, {"$.s", `"héllo"`}, {`"s"`, `"héllo"`},
		{"p[*].n", `["Ann","Bob","Cy"]`}, {"p[*].a", `[30,20]`}, {"p[].t[]", `["x"]`}, {"p[?a > `25`].n", `["Ann"]`}, {"p[?n == 'Bob'] | [0].a", `20`}, {"p[:2].n", `["Ann","Bob"]`}, {"p[::-1].n", `["Cy","Bob","Ann"]`},
		{"m.*", `[2,3,1]`}, {"*.z", `[1]`}, {"m.* | [0]", `2`}, {"keys(m)", `["a","k","z"]`}, {"values(m)", `[2,3,1]`}, {"items(m)[0]", `["a",2]`},
		{"[s, b]", `["héllo",false]`}, {"{x: s, y: m.z}", `{"x":"héllo","y":1}`}, {"s[1:3]", `"él"`}, {"x || s", `"héllo"`}, {"s && b", `false`}, {"!b", `true`}, {"m.z < m.a", `true`}, {"s < 'z'", `null`},
		{"m.z + m.a * `3`", `7`}, {"-m.z", `-1`}, {"m.k / `2`", `1.5`}, {"m.k // `2`", `1`}, {"m.k % `2`", `1`}, {"s + `1`", `null`},
		{"let $x = m.z in p[*].{n: n, x: $x} | [0]", `{"n":"Ann","x":1}`}, {"let $x = m in let $x = m.z, $y = $x in $y.a", `2`},
		{"length(s)", `5`}, {"length(p)", `3`}, {"contains(s, 'é')", `true`}, {"contains(p[*].t, `[\"x\"]`)", `true`}, {"contains(p[*].n, 'Ann')", `true`}, {"sort_by(p[:2], &a)[0].n", `"Bob"`}, {"max_by(p[:2], &a).n", `"Ann"`},
		{"map(&n, p)", `["Ann","Bob","Cy"]`}, {"to_number(num)", `12`}, {"to_number('0x1F')", `null`}, {"to_number('inf')", `null`}, {"to_string(m)", `"{\"a\":2,\"k\":3,\"z\":1}"`}, {"type(b)", `"boolean"`}, {"not_null(x, s)", `"héllo"`},
		{"find_first(s, 'l')", `2`}, {"find_last(s, 'l')", `3`}, {"find_first(s, 'l', `3`)", `3`}, {"find_first(s, 'l', `9`)", `null`}, {"find_first(s, 'l', `4`, `1`)", `null`}, {"find_first(s, 'q')", `null`},
		{"join('-', p[*].n)", `"Ann-Bob-Cy"`}, {"pad_left('a', `3`, '.')", `"..a"`}, {"merge(m, `{\"z\": 9}`).z", `9`}, {"zip(p[*].n, `[1, 2]`)", `[["Ann",1],["Bob",2]]`}, {"group_by(p, &n).Bob[0].a", `20`},
	} {
		var want any
		if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
			t.Fatal(err)
		}
		if got, err := search(t, tt.expr); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %#v, %v, want %s", tt.expr, got, err, tt.want)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{
		"", "a.", ".a", "a[", "a]", "[?", "a b", "a ||", "'a", "`{`", "nothing(@)", "abs()", "abs(a, b)", "not_null()", "length(a, b)", "&a", "[&a]", "a | &b", "map(&a, &b) | &c",
		"let $", "let $x", "let $x =", "let $x = a", "let $x = a in", "let $x = @a in $x", "let a = b in c", "let `1` = a in a", "$x = a", "a[?$x = b]", "foo.[", "{a}", "{a:", "a[1:2:3:4]", "a[::0] |", "@(foo)",
	} {
		if _, err := Compile(expr); err == nil {
			t.Errorf("%q compiles", expr)
		}
	}
}

// Errors of types say which argument, and nothing of the data.
func TestWrongTypes(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"abs(s)":                        "abs: argument 1 is a string, and must be number",
		"sort(p)":                       "sort: argument 1 is an array, and must be array[string] or array[number]",
		"join(`1`, p[*].n)":             "join: argument 1 is a number, and must be string",
		"map(n, p)":                     "map: argument 1 is null, and must be expref",
		"length(&a)":                    "length: argument 1 is an expression, and must be string or array or object",
		"$x":                            "the variable $$x is not defined",
		"find_first(s, 'l', m.z / `2`)": "argument 3 must be an integer",
		"p[::0]":                        "invalid slice, step cannot be 0",
	} {
		if _, err := search(t, expr); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", expr, err, want)
		}
	}
}
