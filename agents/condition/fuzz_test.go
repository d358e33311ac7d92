package condition_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
)

// fuzz evaluates any expression on any value: nothing panics, an error never
// comes with true, and repeated evaluations agree.
func fuzz(f *testing.F, lang aaif.Language, seeds ...string) {
	for _, seed := range seeds {
		f.Add(seed, `{"a":1,"l":[1,"b",null,{"c":[true]}],"s":"text","o":{"p":{"q":-1.5e3}}}`)
	}
	f.Fuzz(func(t *testing.T, expr, data string) {
		p, err := condition.Compile(condition.Expression(lang, expr), condition.Options{MaxCost: 20_000, Timeout: time.Minute})
		if err != nil {
			var e *condition.Error
			if !errors.As(err, &e) || p != nil {
				t.Fatalf("%v, %v", p, err)
			}
			return
		}
		v, err := condition.Parse([]byte(data))
		if err != nil {
			return
		}
		before, err := v.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		first, err := p.Eval(context.Background(), v)
		if err != nil && first || errors.Is(err, condition.ErrPanic) {
			t.Fatalf("%q on %s: %v, %v", expr, data, first, err)
		}
		again, err2 := p.Eval(context.Background(), v)
		if again != first || (err == nil) != (err2 == nil) {
			t.Fatalf("%q on %s: %v, %v, then %v, %v", expr, data, first, err, again, err2)
		}
		if after, _ := v.MarshalJSON(); string(after) != string(before) {
			t.Fatalf("%q changes the value: %s, was %s", expr, after, before)
		}
	})
}

func FuzzJSONPath(f *testing.F) {
	fuzz(f, aaif.LangJSONPath, "$", "$.o..q", "$['l',\"a\"][0:2:1]", "$..[?@.c[0] == true || !(@ > 'a') && count(@.*) != 2]", "$.l[?match(@, '[a-c]+|\\\\p{L}{1,2}') ]", "$[?search(@, $.s) && value(@..c) <= length($.s)]", `$["\u00e9\ud83d\ude00"]`)
}

func FuzzJMESPath(f *testing.F) {
	fuzz(f, aaif.LangJMESPath, "a", "l[?@ == `1`] | [0]", "*.p.q | [0]", "sort_by(l, &to_string(@))[::-1]", "let $x =@a in $x", "let $x = a in {y: $x, z: [s, $.o]}", "join('-', keys(o)) || !b && a >= `1` + a // a", "find_first(s, 't', `1`)", "contains(l, o)", "map(&[@, @][], l)", "pad_left(s, `20`)")
}

func FuzzCEL(f *testing.F) {
	fuzz(f, aaif.LangCEL, "a > 1.0", "l.exists(x, x == 'b') && has(o.p)", "o.map(k, k)[0] == 'p' ? true : s.matches('^t+')", "int(a) + 1 in [1, 2] || duration('1h') > duration(s)", "{'a': l}['a'] == l", "timestamp('2026-01-01T00:00:00Z').getFullYear() == 2026", "size(s + s) < 10")
}

func FuzzJSONLogic(f *testing.F) {
	fuzz(f, aaif.LangJSONLogic, `{"var":"a"}`, `{"==":[{"var":"o.p.q"},"-1500"]}`, `{"reduce":[{"var":"l"},{"cat":[{"var":"accumulator"},{"var":"current"}]},""]}`, `{"if":[{"missing":["a","x"]},{"substr":[{"var":"s"},-2,1]},{"merge":[1,[2]]}]}`, `{"all":[{"filter":[{"var":"l"},{"!!":{"var":""}}]},{"<":[0,{"var":"c"},{"max":[1,2]}]}]}`, `["x",{"in":["x",{"var":"s"}]}]`)
}
