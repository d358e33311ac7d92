package condition_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
)

// Short expressions that would take all the time or memory there is. They end by
// cost, without a clock.
func TestHostileExpressionsEnd(t *testing.T) {
	t.Parallel()
	numbers := make([]int, 2000)
	list, _ := json.Marshal(map[string]any{"l": numbers, "s": strings.Repeat("a", 50_000)})
	deep := strings.Repeat("[", 90) + "1" + strings.Repeat("]", 90)
	repeat := strings.Repeat
	for _, tt := range []struct {
		name       string
		lang       aaif.Language
		expr, data string
		want       error
	}{
		{"selectors that repeat", aaif.LangJSONPath, "$" + repeat("[0,0,0]", 85) + ".nothing", deep, condition.ErrCost},
		{"descendants of descendants", aaif.LangJSONPath, "$" + repeat("..*", 40) + ".nothing", deep, condition.ErrCost},
		{"filters in filters", aaif.LangJSONPath, "$..[?$..[?$..[?$..[?@ == 1]]]].nothing", string(list), condition.ErrCost},
		{"counting for ever", aaif.LangJSONPath, "$[?count($" + repeat("..*", 30) + ") == 0]", deep, condition.ErrCost},
		{"a pattern for each node", aaif.LangJSONPath, "$.l[?search($.s, '(a|b|c|d|e)*f')]", string(list), condition.ErrCost},
		{"a product of counts", aaif.LangJSONPath, "$[?search($.s, '((a{50}){19}){1,1}x')]", string(list), nil},
		{"a list that doubles", aaif.LangJMESPath, "l" + repeat("|[@,@][]", 60), string(list), condition.ErrCost},
		{"a shared value that doubles, as text", aaif.LangJMESPath, "l" + repeat("|[@,@]", 80) + "|to_string(@)", string(list), condition.ErrCost},
		{"a shared value that doubles, compared", aaif.LangJMESPath, "[l" + repeat("|[@,@]", 80) + ", l" + repeat("|[@,@]", 80) + "] | [0] == [1]", string(list), condition.ErrCost},
		{"padding", aaif.LangJMESPath, "pad_left(s, `1000000000`)", string(list), condition.ErrCost},
		{"glue", aaif.LangJMESPath, "join(s, map(&'', l))", string(list), condition.ErrCost},
		{"text that doubles", aaif.LangJMESPath, "s" + repeat("|join(@, ['','',''])", 40), string(list), condition.ErrCost},
		{"replacing by much", aaif.LangJMESPath, "replace(s, 'a', s)", string(list), condition.ErrCost},
		{"maps in maps", aaif.LangJMESPath, repeat("map(&", 10) + "@" + repeat(", $.l)", 10), string(list), condition.ErrCost},
		{"an accumulator that doubles", aaif.LangJSONLogic, `{"reduce":[{"var":"l"},{"merge":[{"var":"accumulator"},{"var":"accumulator"}]},[1]]}`, string(list), condition.ErrCost},
		{"a text that doubles", aaif.LangJSONLogic, `{"reduce":[{"var":"l"},{"cat":[{"var":"accumulator"},{"var":"accumulator"}]},"a"]}`, string(list), condition.ErrCost},
		{"a tree that doubles, as text", aaif.LangJSONLogic, `{"cat":[{"reduce":[{"var":"l"},[[{"var":"accumulator"}],[{"var":"accumulator"}]],1]}]}`, string(list), condition.ErrCost},
		{"a list in a list in a list", aaif.LangJSONLogic, `{"cat":[{"reduce":[{"var":"l"},[{"var":"accumulator"}],1]}]}`, repeatList(30_000), condition.ErrCost},
		{"loops in loops", aaif.LangJSONLogic, repeat(`{"map":[[1,1,1,1,1,1,1,1,1,1],`, 12) + "1" + repeat("]}", 12), `{}`, condition.ErrCost},
		{"loops in loops", aaif.LangCEL, "l.all(a, l.all(b, l.all(c, l.all(d, true))))", string(list), condition.ErrCost},
		{"texts that grow", aaif.LangCEL, "l.map(a, s + s + s + s).size() > 0", string(list), condition.ErrCost},
		{"a regular expression for each", aaif.LangCEL, "l.all(a, s.matches('(a|b|c)*'))", string(list), condition.ErrCost},
		{"a sum of texts", aaif.LangCEL, "(s + s" + repeat(" + s", 60) + ") == ''", string(list), nil},
		{"a long sum of texts", aaif.LangCEL, "(s + s" + repeat(" + s", 4000) + ") == ''", string(list), condition.ErrSyntax},
		{"comparing much", aaif.LangCEL, "l == l" + repeat(" && l == l", 1500), string(list), condition.ErrCost},
		{"looking in much", aaif.LangCEL, "!(1 in l)" + repeat(" && !(1 in l)", 1200), string(list), condition.ErrCost},
		{"texts in lists in lists", aaif.LangCEL, "[s]" + repeat(".map(x, [x, x])", 200) + ".size() > 5", string(list), nil},
		{"a shared value that doubles, compared", aaif.LangCEL, "[1]" + repeat(".map(x, [x, x])", 24) + " == [1]" + repeat(".map(x, [x, x])", 24), `{}`, condition.ErrCost},
		{"a shared member that doubles", aaif.LangCEL, "[1]" + repeat(".map(x, {'a': x, 'b': x})", 24) + " != [1]" + repeat(".map(x, {'a': x, 'b': x})", 24), `{}`, condition.ErrCost},
		{"a shared value that doubles, as a name", aaif.LangCEL, "{'a': 1}[dyn([1]" + repeat(".map(x, [x, x])", 20) + ")] == 1", `{}`, condition.ErrCost},
		{"a pattern that is large when compiled", aaif.LangCEL, "s.matches('" + repeat("x{1000}", 500) + "')", string(list), condition.ErrSyntax},
		{"a pattern from the data", aaif.LangCEL, "'x'.matches(p)", `{"p":"` + repeat("x{1000}", 500) + `"}`, condition.ErrCost},
		{"a pattern that is slow", aaif.LangCEL, "l.all(x, !s.matches('((a{30}){30})b'))", string(list), condition.ErrCost},
		{"a pattern from the data", aaif.LangJSONPath, "$[?match('x', $.p)]", `{"p":"` + repeat("x{1000}", 500) + `"}`, nil},
		{"a pattern that is slow", aaif.LangJSONPath, "$.l[?search($.s, '((a{30}){30})b')]", string(list), condition.ErrCost},
		{"text of 16 KiB", aaif.LangCEL, repeat("a", 17<<10), `{}`, condition.ErrTooLarge},
		{"brackets", aaif.LangJSONPath, "$" + repeat("[?(", 5000), `{}`, condition.ErrSyntax},
		{"parentheses", aaif.LangJSONPath, "$[?" + repeat("(", 16_000), `{}`, condition.ErrSyntax},
		{"negations", aaif.LangJSONPath, "$[?" + repeat("!", 16_000) + "@]", `{}`, condition.ErrSyntax},
		{"calls", aaif.LangJSONPath, "$[?" + repeat("length(", 2000), `{}`, condition.ErrSyntax},
		{"brackets", aaif.LangJMESPath, repeat("[", 16_000), `{}`, condition.ErrSyntax},
		{"parentheses", aaif.LangJMESPath, repeat("(", 16_000), `{}`, condition.ErrSyntax},
		{"negations", aaif.LangJMESPath, repeat("!", 16_000) + "@", `{}`, nil},
		{"references", aaif.LangJMESPath, repeat("&", 16_000) + "@", `{}`, condition.ErrSyntax},
		{"signs", aaif.LangJMESPath, repeat("-", 16_000) + "@", `{}`, nil},
		{"a rule in a rule", aaif.LangJSONLogic, repeat(`{"!":`, 2000) + "1" + repeat("}", 2000), `{}`, condition.ErrSyntax},
		{"lists", aaif.LangJSONLogic, repeat("[", 8000) + repeat("]", 8000), `{}`, condition.ErrSyntax},
		{"parentheses", aaif.LangCEL, repeat("(", 8000) + "true" + repeat(")", 8000), `{}`, condition.ErrSyntax},
		{"negations", aaif.LangCEL, repeat("!", 16_000) + "true", `{}`, nil},
		{"questions", aaif.LangCEL, repeat("true ? true : ", 1100) + "true", `{}`, condition.ErrSyntax},
	} {
		t.Run(fmt.Sprintf("%s/%s", tt.lang, tt.name), func(t *testing.T) {
			t.Parallel()
			p, err := condition.Compile(condition.Expression(tt.lang, tt.expr), condition.Options{MaxCost: 200_000, Timeout: time.Hour})
			if err == nil {
				_, err = p.Eval(context.Background(), mustParse(t, tt.data))
			}
			if tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("%.200v, want %v", err, tt.want)
			}
		})
	}
}

func repeatList(n int) string { return `{"l":[1` + strings.Repeat(",1", n-1) + "]}" }

func TestLargeValuesAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		want       error
	}{
		{"large", `"` + strings.Repeat("a", condition.MaxValue) + `"`, condition.ErrTooLarge},
		{"deep", strings.Repeat("[", 101) + strings.Repeat("]", 101), condition.ErrTooLarge},
		{"very deep", strings.Repeat("[", condition.MaxValue), condition.ErrTooLarge},
		{"a name twice", `{"a":1,"a":2}`, condition.ErrValue},
		{"beyond a double", `1e400`, condition.ErrValue},
		{"no UTF-8", "\"\xff\"", condition.ErrValue},
		{"two values", `1 2`, condition.ErrValue},
		{"nothing", ``, condition.ErrValue},
	} {
		if _, err := condition.Parse([]byte(tt.text)); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if _, err := condition.Parse([]byte(strings.Repeat("[", 100) + strings.Repeat("]", 100))); err != nil {
		t.Error(err)
	}
}

// Brackets within texts are no nesting.
func TestNestingIsCountedOutsideOfTexts(t *testing.T) {
	t.Parallel()
	if _, err := condition.Parse([]byte(`{"a\"":"` + strings.Repeat("[", 500) + `\\"}`)); err != nil {
		t.Error(err)
	}
}

func TestCost(t *testing.T) {
	t.Parallel()
	for lang, expr := range map[aaif.Language]string{
		aaif.LangJSONPath:  "$..nothing",
		aaif.LangJMESPath:  "l[?@ > `5`]",
		aaif.LangCEL:       "l.exists(x, x > 5.0)",
		aaif.LangJSONLogic: `{"some":[{"var":"l"},{">":[{"var":""},5]}]}`,
	} {
		v := mustParse(t, repeatList(1000))
		tight, err := condition.Compile(condition.Expression(lang, expr), condition.Options{MaxCost: 500})
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := tight.Eval(context.Background(), v); ok || !errors.Is(err, condition.ErrCost) {
			t.Errorf("%s: %v, %v", lang, ok, err)
		}
		wide, err := condition.Compile(condition.Expression(lang, expr), condition.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := wide.Eval(context.Background(), v); ok || err != nil {
			t.Errorf("%s: %v, %v", lang, ok, err)
		}
	}
}

// loops are long by any clock, within the given cost.
var loops = map[aaif.Language]string{
	aaif.LangJSONPath:  "$..[?$..[?$..[?$..[?@ == 5]]]].nothing",
	aaif.LangJMESPath:  strings.Repeat("map(&", 10) + "@" + strings.Repeat(", $.l)", 10),
	aaif.LangCEL:       "l.all(a, l.all(b, l.all(c, l.all(d, true))))",
	aaif.LangJSONLogic: strings.Repeat(`{"map":[[1,1,1,1,1,1,1,1,1,1],`, 12) + "1" + strings.Repeat("]}", 12),
}

func TestTimeIsBounded(t *testing.T) {
	t.Parallel()
	for lang, expr := range loops {
		p, err := condition.Compile(condition.Expression(lang, expr), condition.Options{MaxCost: 1 << 50, Timeout: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := p.Eval(context.Background(), mustParse(t, repeatList(2000))); ok || !errors.Is(err, condition.ErrTimeout) {
			t.Errorf("%s: %v, %v", lang, ok, err)
		}
	}
}

func TestACancelledContextEndsAnEvaluation(t *testing.T) {
	t.Parallel()
	for lang, expr := range loops {
		p, err := condition.Compile(condition.Expression(lang, expr), condition.Options{MaxCost: 1 << 50, Timeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		if ok, err := p.Eval(ctx, mustParse(t, repeatList(2000))); ok || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, condition.ErrTimeout) {
			t.Errorf("%s: %v, %v", lang, ok, err)
		}
		cancel()
		if ok, err := p.Eval(ctx, mustParse(t, `{}`)); ok || err == nil {
			t.Errorf("%s: %v, %v", lang, ok, err)
		}
	}
}
