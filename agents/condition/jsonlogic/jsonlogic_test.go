package jsonlogic

import (
	"context"
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"github.com/aeemesh/aeemesh/agents/condition/limit"
)

// result is what a rule gives, and not only whether it is truthy.
func result(t testing.TB, rule, data string) any {
	t.Helper()
	p, err := Compile([]byte(rule))
	if err != nil {
		t.Errorf("%s: %v", rule, err)
		return nil
	}
	var v any
	if err := json.Unmarshal([]byte(data), &v); err != nil {
		t.Fatal(err)
	}
	out, err := limit.Run(context.Background(), 1e6, func(b *limit.Budget) (any, error) { return p.root.eval(b, v), nil })
	if err != nil {
		t.Errorf("%s: %v", rule, err)
	}
	return out
}

func TestRules(t *testing.T) {
	t.Parallel()
	const data = `{"a":1,"b":"2","l":[1,2,3],"o":{"p":{"q":"r"},"l":[{"i":1},{"i":2}]},"n":null,"e":""}`
	for _, tt := range []struct{ rule, want string }{
		{`17`, `17`}, {`"apple"`, `"apple"`}, {`null`, `null`}, {`["a",{"var":"a"}]`, `["a",1]`}, {`{}`, `{}`}, {`{"a":1,"b":{"var":"a"}}`, `{"a":1,"b":{"var":"a"}}`},
		// Reading the data.
		{`{"var":"a"}`, `1`}, {`{"var":["a"]}`, `1`}, {`{"var":"o.p.q"}`, `"r"`}, {`{"var":"l.1"}`, `2`}, {`{"var":"l.01"}`, `null`}, {`{"var":"l.-1"}`, `null`}, {`{"var":"l.length"}`, `null`},
		{`{"var":["x",9]}`, `9`}, {`{"var":["n",9]}`, `null`}, {`{"var":{"cat":["o",".p"]}}`, `{"q":"r"}`}, {`{"map":[{"var":"l"},{"var":""}]}`, `[1,2,3]`}, {`{"map":[{"var":"l"},{"var":[]}]}`, `[1,2,3]`},
		{`{"missing":["a","x","e","n"]}`, `["x","e","n"]`}, {`{"missing":{"merge":["a",["x"]]}}`, `["x"]`}, {`{"missing":"x"}`, `["x"]`},
		{`{"missing_some":[1,["a","x"]]}`, `[]`}, {`{"missing_some":[2,["a","x","y"]]}`, `["x","y"]`},
		// Logic.
		{`{"if":[true,1,2]}`, `1`}, {`{"if":[[],1,"0",2,3]}`, `2`}, {`{"if":[0,1,"",2,3]}`, `3`}, {`{"if":[false,1]}`, `null`}, {`{"if":[]}`, `null`}, {`{"?:":[1,2,3]}`, `2`}, {`{"if":[{},1,2]}`, `1`},
		{`{"and":[1,"a",0,2]}`, `0`}, {`{"and":[1,"a"]}`, `"a"`}, {`{"or":[0,"",[],"x",1]}`, `"x"`}, {`{"or":[0,""]}`, `""`}, {`{"!":[[]]}`, `true`}, {`{"!":0}`, `true`}, {`{"!!":["0"]}`, `true`}, {`{"!!":{}}`, `true`},
		{`{"==":[1,"1"]}`, `true`}, {`{"==":[0,""]}`, `true`}, {`{"==":[null,0]}`, `false`}, {`{"==":[null,{"var":"x"}]}`, `true`}, {`{"==":[true,"1"]}`, `true`}, {`{"==":[[1,2],"1,2"]}`, `true`}, {`{"==":[[1],[1]]}`, `false`},
		{`{"===":[1,"1"]}`, `false`}, {`{"===":[1,1.0]}`, `true`}, {`{"!=":[1,"1"]}`, `false`}, {`{"!==":[1,"1"]}`, `true`},
		{`{"===":[true,true]}`, `true`}, {`{"===":[true,1]}`, `false`}, {`{"===":["a","a"]}`, `true`}, {`{"===":[null,null]}`, `true`}, {`{"===":[null,0]}`, `false`}, {`{"===":[[1],[1]]}`, `false`}, {`{"===":[{},{}]}`, `false`}, {`{"===":[1,[1]]}`, `false`},
		// Order.
		{`{"<":["10","9"]}`, `true`}, {`{"<":[10,"9"]}`, `false`}, {`{"<":[1,2,3]}`, `true`}, {`{"<":[1,2,2]}`, `false`}, {`{"<=":[1,2,2]}`, `true`}, {`{">":["b","a"]}`, `true`}, {`{">=":[1,"x"]}`, `false`}, {`{"<":[null,1]}`, `true`}, {`{"<":[1]}`, `false`},
		{`{"max":[1,3,"2"]}`, `3`}, {`{"min":[1,-3]}`, `-3`},
		// Arithmetic.
		{`{"+":["3.5xyz",1]}`, `4.5`}, {`{"+":"3"}`, `3`}, {`{"+":[]}`, `0`}, {`{"*":[2,"3"]}`, `6`}, {`{"*":"3"}`, `"3"`}, {`{"-":[5,"3"]}`, `2`}, {`{"-":"3"}`, `-3`}, {`{"/":[6,4]}`, `1.5`}, {`{"%":[-5,3]}`, `-2`},
		// Lists.
		{`{"filter":[{"var":"l"},{">":[{"var":""},1]}]}`, `[2,3]`}, {`{"filter":[null,true]}`, `[]`}, {`{"map":["x",1]}`, `[]`},
		{`{"reduce":[{"var":"l"},{"+":[{"var":"current"},{"var":"accumulator"}]},0]}`, `6`}, {`{"reduce":[null,1,7]}`, `7`}, {`{"map":[{"var":"o.l"},{"var":"i"}]}`, `[1,2]`},
		{`{"all":[{"var":"l"},{">":[{"var":""},0]}]}`, `true`}, {`{"all":[[],true]}`, `false`}, {`{"some":[[],true]}`, `false`}, {`{"none":[[],true]}`, `true`}, {`{"none":[{"var":"l"},{"==":[{"var":""},2]}]}`, `false`},
		{`{"merge":[1,[2,[3]],"x"]}`, `[1,2,[3],"x"]`}, {`{"in":[2,{"var":"l"}]}`, `true`}, {`{"in":["2",{"var":"l"}]}`, `false`}, {`{"in":["pp","apple"]}`, `true`}, {`{"in":["a",null]}`, `false`},
		// Text.
		{`{"cat":["a",1,null,[1,[2,null]],true,1e21,1e-7,-0.5]}`, `"a11,2,true1e+211e-7-0.5"`}, {`{"substr":["jsonlogic",4]}`, `"logic"`}, {`{"substr":["jsonlogic",-5]}`, `"logic"`}, {`{"substr":["jsonlogic",1,3]}`, `"son"`}, {`{"substr":["jsonlogic",4,-2]}`, `"log"`},
		{`{"substr":["é😀x",1,2]}`, `"😀"`}, {`{"substr":["abc",9]}`, `""`}, {`{"log":"a"}`, `"a"`},
	} {
		var want any
		if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
			t.Fatal(err)
		}
		if got := result(t, tt.rule, data); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %#v, want %s", tt.rule, got, tt.want)
		}
	}
}

func TestWhatIsNoNumberIsFalse(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{`{"+":["x",1]}`, `{"-":["x",1]}`, `{"max":["x",1]}`, `{"min":["x",{"-":[{"/":[1,0]}]}]}`, `{"%":[1,0]}`, `{"/":[0,0]}`} {
		got, ok := result(t, rule, `{}`).(float64)
		if !ok || !math.IsNaN(got) || truthy(got) {
			t.Errorf("%s: %v", rule, got)
		}
	}
}

// ECMA-262's reading of texts as numbers.
func TestTextsAsNumbers(t *testing.T) {
	t.Parallel()
	inf := math.Inf(1)
	for text, want := range map[string]float64{
		"": 0, " \n": 0, "1": 1, " -1.5e2 ": -150, "+3": 3, ".5": 0.5, "5.": 5, "0x1F": 31, "0b11": 3, "0o17": 15, "Infinity": inf, "-Infinity": -inf, "1e999": inf,
	} {
		if got := textNumber(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	for _, text := range []string{"x", "1x", "0x", "-0x1F", "1_000", "Inf", "inf", "++Infinity", "NaN", "1e", "."} {
		if got := textNumber(text); !math.IsNaN(got) {
			t.Errorf("%q: %v, want no number", text, got)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{`{"nothing":1}`, `{"if":[false,{"nothing":[]}]}`, `[{"method":["a","b"]}]`, `{"":1}`, `{`, ``, `{"var":"a","var":"b"}`} {
		if _, err := Compile([]byte(rule)); err == nil {
			t.Errorf("%s compiles", rule)
		}
	}
}
