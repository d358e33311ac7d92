package condition_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
)

var benchmarks = []struct {
	lang aaif.Language
	expr string
}{
	{aaif.LangJSONPath, "$.input.items[?@.price > 10 && @.tags[?@ == 'b']]"},
	{aaif.LangJMESPath, "input.items[?price > `10` && contains(tags, 'b')]"},
	{aaif.LangCEL, "input.items.exists(i, i.price > 10.0 && 'b' in i.tags)"},
	{aaif.LangJSONLogic, `{"some":[{"var":"input.items"},{"and":[{">":[{"var":"price"},10]},{"in":["b",{"var":"tags"}]}]}]}`},
}

const benchPayload = `{"customer":"c-17","items":[{"price":5,"tags":["a"]},{"price":12,"tags":["c"]},{"price":30,"tags":["a","b"]}]}`

func BenchmarkCompile(b *testing.B) {
	for _, bm := range benchmarks {
		b.Run(string(bm.lang), func(b *testing.B) {
			c := condition.Expression(bm.lang, bm.expr)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := condition.Compile(c, condition.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEval(b *testing.B) {
	v, err := condition.Facts{Input: json.RawMessage(benchPayload)}.Value()
	if err != nil {
		b.Fatal(err)
	}
	for _, bm := range benchmarks {
		b.Run(string(bm.lang), func(b *testing.B) {
			p, err := condition.Compile(condition.Expression(bm.lang, bm.expr), condition.Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if ok, err := p.Eval(context.Background(), v); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}

// BenchmarkValue is what is done once for all conditions of a place.
func BenchmarkValue(b *testing.B) {
	f := condition.Facts{Input: json.RawMessage(benchPayload), Task: &condition.Task{ID: "t", Intent: "i"}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Value(); err != nil {
			b.Fatal(err)
		}
	}
}
