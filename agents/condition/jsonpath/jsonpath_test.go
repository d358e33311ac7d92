package jsonpath

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/condition/limit"
)

func decode(t testing.TB, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// nodes are all that a query selects.
func nodes(t testing.TB, text, data string) []any {
	t.Helper()
	q, err := Compile(text)
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return nil
	}
	value := decode(t, data)
	list, err := limit.Run(context.Background(), 1e6, func(b *limit.Budget) ([]any, error) {
		out := []any{}
		q.q.each(&evaluation{b: b, root: value}, value, func(n any) bool { out = append(out, n); return true })
		return out, nil
	})
	if err != nil {
		t.Errorf("%s: %v", text, err)
	}
	return list
}

const store = `{"store":{"book":[
 {"category":"reference","author":"Nigel Rees","title":"Sayings","price":8.95},
 {"category":"fiction","author":"Evelyn Waugh","title":"Sword","price":12.99},
 {"category":"fiction","author":"Herman Melville","title":"Moby","isbn":"0-553","price":8.99},
 {"category":"fiction","author":"J. R. R. Tolkien","title":"Rings","isbn":"0-395","price":22.99}],
 "bicycle":{"color":"red","price":399}}}`

// Queries and their nodes, after the tables of RFC 9535.
func TestSelect(t *testing.T) {
	t.Parallel()
	const abc = `{"a":[3,5,1,2,4,6,{"b":"j"},{"b":"k"},{"b":{}},{"b":"kilo"}],"o":{"p":1,"q":2,"r":3,"s":5,"t":{"u":6}},"e":"f"}`
	const cmp = `{"obj":{"x":"y"},"arr":[2,3]}`
	holds := func(expr string) string { return "$[?" + expr + "]" }
	for _, tt := range []struct{ query, data, want string }{
		{"$.store.book[*].author", store, `["Nigel Rees","Evelyn Waugh","Herman Melville","J. R. R. Tolkien"]`},
		{"$..price", store, `[399,8.95,12.99,8.99,22.99]`}, // members by name: bicycle is before book
		{"$..book[2].author", store, `["Herman Melville"]`},
		{"$..book[2].publisher", store, `[]`},
		{"$..book[-1].title", store, `["Rings"]`},
		{"$..book[0,1].title", store, `["Sayings","Sword"]`},
		{"$..book[:2].title", store, `["Sayings","Sword"]`},
		{"$..book[?@.isbn].title", store, `["Moby","Rings"]`},
		{"$..book[?@.price<10].title", store, `["Sayings","Moby"]`},
		{"$ [ 'store' ] \n .bicycle [ \"color\" ]", store, `["red"]`},
		{"$.o['p','p']", abc, `[1,1]`},
		{"$.a[5:1:-2]", abc, `[6,2]`},
		{"$.a[::-1][0]", `{"a":[[1],[2]]}`, `[2,1]`},
		{"$.a[1:100:9007199254740991]", abc, `[5]`},
		{"$.a[1:3:0]", abc, `[]`},
		{"$.a[-100:1]", abc, `[3]`},
		{"$.a[?@.b == 'kilo']", abc, `[{"b":"kilo"}]`},
		{"$.a[?@>3.5]", abc, `[5,4,6]`},
		{"$[?@.*]", abc, `[[3,5,1,2,4,6,{"b":"j"},{"b":"k"},{"b":{}},{"b":"kilo"}],{"p":1,"q":2,"r":3,"s":5,"t":{"u":6}}]`},
		{"$.a[?@<2 || @.b == \"k\"]", abc, `[1,{"b":"k"}]`},
		{"$.a[?match(@.b, \"[jk]\")]", abc, `[{"b":"j"},{"b":"k"}]`},
		{"$.a[?search(@.b, \"[jk]\")]", abc, `[{"b":"j"},{"b":"k"},{"b":"kilo"}]`},
		{"$.o[?@>1 && @<4]", abc, `[2,3]`},
		{"$.o[?@.u || @.x]", abc, `[{"u":6}]`},
		{"$.a[?@.b == $.x]", abc, `[3,5,1,2,4,6]`}, // Nothing is equal to Nothing
		{"$.a[?@ == @][0]", `{"a":[[1]]}`, `[1]`},
		{"$[?length(@) == 2]", `["ab","é☺","a",[1,2],{"a":1,"b":2},2]`, `["ab","é☺",[1,2],{"a":1,"b":2}]`},
		{"$[?count(@.*) == 2]", `[[1,2],{"a":1},3]`, `[[1,2]]`},
		{"$[?value(@..x) == 1]", `[{"x":1},{"x":1,"y":{"x":1}}]`, `[{"x":1}]`},
		{"$[?!(@.a)]", `[{"a":1},{"b":1}]`, `[{"b":1}]`},
		{"$[?!@.a]", `[{"a":null},{"b":1}]`, `[{"b":1}]`},
		{`$["\u00e9\ud83d\ude00\"\/"]`, `{"é😀\"/":1}`, `[1]`},
		{`$['\'"']`, `{"'\"":1}`, `[1]`},
		{"$.☺", `{"☺":1}`, `[1]`},
		{"$..[0]", `[[1],[2]]`, `[[1],1,2]`},
		{"$[?@ == -0]", `[0,-0.0,1]`, `[0,0]`},
		{"$[?@ == 1e2]", `[100]`, `[100]`},
		{"$[?@ == null]", `[null,0,false]`, `[null]`},
		// Comparisons (section 2.3.5.3, the table of comparisons).
		{holds("$.absent1 == $.absent2"), cmp, `[[2,3],{"x":"y"}]`},
		{holds("$.absent1 <= $.absent2"), cmp, `[[2,3],{"x":"y"}]`},
		{holds("$.absent == 'g'"), cmp, `[]`},
		{holds("$.absent1 != $.absent2"), cmp, `[]`},
		{holds("$.absent != 'g'"), cmp, `[[2,3],{"x":"y"}]`},
		{holds("1 <= 2"), cmp, `[[2,3],{"x":"y"}]`},
		{holds("1 > 2"), cmp, `[]`},
		{holds("13 == '13'"), cmp, `[]`},
		{holds("'a' <= 'b'"), cmp, `[[2,3],{"x":"y"}]`},
		{holds("'a' > 'b'"), cmp, `[]`},
		{holds("$.obj == $.arr"), cmp, `[]`},
		{holds("$.obj != $.arr"), cmp, `[[2,3],{"x":"y"}]`},
		{holds("$.obj == $.obj"), cmp, `[[2,3],{"x":"y"}]`},
		{holds("$.obj <= $.arr"), cmp, `[]`},
		{holds("$.arr <= $.arr"), cmp, `[[2,3],{"x":"y"}]`},
		{holds("1 <= $.arr"), cmp, `[]`},
		{holds("true <= true"), cmp, `[[2,3],{"x":"y"}]`},
		{holds("true > true"), cmp, `[]`},
		{holds("true >= false"), cmp, `[]`},
	} {
		if got, want := nodes(t, tt.query, tt.data), decode(t, tt.want); !reflect.DeepEqual(any(got), want) {
			text, _ := json.Marshal(got)
			t.Errorf("%s on %s:\n%s, want\n%s", tt.query, tt.data, text, tt.want)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	for _, query := range []string{
		"", " ", "a", " $", "$ ", "$\n", "$.", "$..", "$...a", "$.[0]", "$. a", "$.a-b", "$.1a", "$.&", "$a", "$[]", "$[,]", "$[0,]", "$[0", "$[0 1]", "$['a]",
		"$[01]", "$[-0]", "$[1.0]", "$[1e1]", "$[9007199254740992]", "$[-9007199254740992]", "$[1:2:3:4]", "$[:01]", "$['a\tb']", `$['\x']`, `$['\"']`, `$["\'"]`,
		`$["\ud83d"]`, `$["\ude00"]`, `$["\ud83d\u0041"]`, `$["\u12"]`, "$[?]", "$[?()]", "$[?@.a &&]", "$[?@.a & @.b]", "$[?true]", "$[?1]", "$[?'a']", "$[?(1)]",
		"$[?!1 == 2]", "$[?@.a == ]", "$[?@.* == 1]", "$[?@..a == 1]", "$[?@[0,1] == 1]", "$[?@[0:1] == 1]", "$[?@[?@.a] == 1]", "$[?@.a == 01]", "$[?@.a == 1.]", "$[?@.a == .5]",
		"$[?@.a == +1]", "$[?@.a == 1e]", "$[?@.a === 1]", "$[?@.a = 1]", "$[?1 == 2 == 3]", "$[?@.a == TRUE]", "$[?@.a == nul]", "$[?@.a == [1]]",
		"$[?length(@.a)]", "$[?count(@.*)]", "$[?value(@.a)]", "$[?!length(@)]", "$[?match(@.a, 'a') == true]", "$[?search(@.a)]", "$[?length()]", "$[?length(@.a, @.b)]",
		"$[?length(@.*) == 1]", "$[?length(@.a == 1) == 1]", "$[?count(1) == 1]", "$[?count(length(@)) == 1]", "$[?nothing(@)]", "$[?length (@) == 1]", "$[?Length(@) == 1]",
		"$[?match(@.a, 'a'), ]", "$[?@.a, ?]", "$[? @.a ) ]", "$[?((@.a)]", "$[?@.a == 1e999]", "$[?\"a\" == 'b' || ]", "$\x00", "$['\xff']", "$.\xff", "$[?! @.a == 1]",
	} {
		if _, err := Compile(query); err == nil {
			t.Errorf("%q compiles", query)
		}
	}
}

// I-Regexp (RFC 9485): what it has, and what it has not and Go's own syntax has.
func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, text string
		whole, want   bool
	}{
		{"a.c", "abc", true, true},
		{"a.c", "a\nc", true, false},
		{"a.c", "a\rc", true, false},
		{"a.c", "a\u2028c", true, true},
		{"a|b", "axyz", true, false}, // anchored as a whole
		{"a|b", "b", true, true},
		{"a|b", "xb", false, true},
		{"", "", true, true},
		{"", "a", false, true},
		{"a{2,3}", "aaa", true, true},
		{"a{2}", "aaa", true, false},
		{"a{2,}", "aaaa", true, true},
		{"(ab)+c?", "abab", true, true},
		{"[a-c]+", "abc", true, true},
		{"[^a-c]", "d", true, true},
		{"[a-]", "-", true, true},
		{"[-a]", "-", true, true},
		{"[^-a]", "-", true, false},
		{`[\]\[\^\-]+`, `]^[-`, true, true},
		{`[&&~~|]+`, `&~|`, true, true},
		{`\.\(\)\\`, `.()\`, true, true},
		{`\n\t\r`, "\n\t\r", true, true},
		{`\p{Lu}\P{Nd}`, "Éx", true, true},
		{`[\p{L}0-9]+`, "é9", true, true},
		{"😀{2}", "😀😀", true, true},
		// Not I-Regexps: they match nothing.
		{`\d`, "1", true, false},
		{`\w`, "a", true, false},
		{`(?i)a`, "a", true, false},
		{`(?:a)`, "a", true, false},
		{`a*?`, "a", true, false},
		{`a**`, "a", true, false},
		{`a{,2}`, "a", true, false},
		{`a{2`, "a{2", true, false},
		{`[[:alpha:]]`, "a", true, false},
		{`[]a]`, "]", true, false},
		{`[]`, "a", false, false},
		{`[z-a]`, "m", true, false},
		{`(a`, "a", true, false},
		{`a)`, "a", true, false},
		{`*a`, "a", true, false},
		{`\1`, "1", true, false},
		{`\p{Greek}`, "α", true, false},
		{`\pL`, "a", true, false},
		{`\`, `\`, true, false},
		{`a]`, "a]", true, false},
		{`a}`, "a}", true, false},
		{"\xff", "\xff", true, false},
	} {
		got, err := limit.Run(context.Background(), 1e6, func(b *limit.Budget) (bool, error) {
			return compilePattern(tt.pattern, tt.whole).matches(b, tt.text), nil
		})
		if err != nil || got != tt.want {
			t.Errorf("%q (whole %v) on %q: %v, %v, want %v", tt.pattern, tt.whole, tt.text, got, err, tt.want)
		}
	}
}

// A pattern may be data, and what is no text matches nothing.
func TestPatternsFromData(t *testing.T) {
	t.Parallel()
	const data = `{"p":"a.","q":1,"l":["ab","a",5]}`
	for query, want := range map[string]string{
		"$.l[?match(@, $.p)]":       `["ab"]`,
		"$.l[?match(@, $.q)]":       `[]`,
		"$.l[?match(@, $.nothing)]": `[]`,
		"$.l[?!match(@, 1)]":        `["ab","a",5]`,
	} {
		if got := nodes(t, query, data); !reflect.DeepEqual(any(got), decode(t, want)) {
			t.Errorf("%s: %v, want %s", query, got, want)
		}
	}
}

// A short pattern may be large when it is compiled. What an evaluation compiles and keeps of the
// data's patterns is within its budget.
func TestPatternsFromDataAreWithinTheBudget(t *testing.T) {
	t.Parallel()
	const cost = 1_000_000
	var e *evaluation
	_, err := limit.Run(t.Context(), cost, func(b *limit.Budget) (bool, error) {
		e = &evaluation{b: b}
		for i := range 10_000 {
			e.pattern(fmt.Sprintf("%s%d", strings.Repeat("a{1000}", 6), i), true)
		}
		return true, nil
	})
	kept := 0
	for _, p := range e.patterns {
		if p.re == nil {
			t.Fatal("the pattern is not compiled")
		}
		kept += p.re.Size()
	}
	if !errors.Is(err, limit.ErrCost) || kept == 0 || kept > cost {
		t.Errorf("%d patterns with %d instructions are kept, %v", len(e.patterns), kept, err)
	}
}

// Exists ends with the first node.
func TestExistsEndsEarly(t *testing.T) {
	t.Parallel()
	q, err := Compile("$..*")
	if err != nil {
		t.Fatal(err)
	}
	large := make([]any, 100_000)
	found, err := limit.Run(context.Background(), 10, func(b *limit.Budget) (bool, error) { return q.Exists(b, large) })
	if err != nil || !found {
		t.Error(found, err)
	}
}
