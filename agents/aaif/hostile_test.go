package aaif

import (
	"fmt"
	"strings"
	"testing"
)

// TestHostileDocuments reads documents of the maximum size that cost as much as
// possible: deep nesting, recursion, backtracking, very many problems. Without
// a limit they would take minutes or crash the process; the deadline of the
// test run detects that.
func TestHostileDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads megabytes, and does nothing at once")
	}
	const n = DefaultMaxBytes
	fill := func(head, unit, tail string) string {
		return head + strings.Repeat(unit, (n-len(head)-len(tail))/len(unit)) + tail
	}
	count := func(head, format, tail string, times int) string {
		var b strings.Builder
		b.WriteString(head)
		for i := 0; i < times && b.Len() < n-len(tail)-64; i++ {
			fmt.Fprintf(&b, format, i)
		}
		b.WriteString(tail)
		return b.String()
	}
	// Most of what costs in YAML is refused for its amount; some is sent at a tenth of the size, too.
	tenth := func(head, unit, tail string) string {
		return head + strings.Repeat(unit, n/10/len(unit)) + tail
	}
	const agent = `{"sc_standard":"SC-006","agent":{"name":"A","goal":"G",`
	for _, tt := range []struct {
		name   string
		format Format
		text   string
		want   Rule // of the first problem; "" is none
	}{
		{"unknown fields", JSON, count(`{`, `"k%d":1,`, `"z":1}`, n), RuleRequired},
		{"unknown fields in many places", JSON, count(agent+`"tools":[`, `{"k%d":1},`, `{}]}}`, n), RuleRequired},
		{"words that are none", JSON, count(agent+`"memory":[`, `{"scope":"k%d","content":"c"},`, `{}]}}`, n), RuleEnum},
		{"the same tag again and again", JSON, fill(`{"sc_standard":"SC-006","agent":{"name":"A","goal":"G"},"tags":["a"`, `,"a"`, `]}`), RuleUnique},
		{"tags that differ", JSON, count(`{"sc_standard":"SC-006","agent":{"name":"A","goal":"G"},"tags":[`, `"k%d",`, `""]}`, n), ""},
		{"tags that are objects", JSON, count(`{"sc_standard":"SC-006","agent":{"name":"A","goal":"G"},"tags":[`, `{"a":%d},`, `""]}`, n), RuleType},
		{"references that lead nowhere", JSON, count(count(agent+`"orchestration":{"subagents":[`, `{"ref":"r%d","alias":"a%[1]d"},`, `{"ref":"z"}],"pipeline":[`, 15000), `"x%d",`, `"z"]}}}`, n), ""},
		{"brackets", JSON, fill("", "[", ""), RuleTooDeep},
		{"one long word", JSON, fill(agent+`"instructions":"`, "x", `"}}`), ""},
		{"half a token, often", JSON, fill(agent+`"instructions":"`, "eyJ-sk-", `"}}`), ""},
		{"URLs, often", JSON, fill(agent+`"instructions":"`, "a://b?c&", `"}}`), ""},
		{"a long name", JSON, fill(`{"sc_standard":"SC-006","agent":{"goal":"G","name":"`, "é", `"}}`), RuleEntity},
		{"credentials", JSON, count(`{"sc_standard":"SC-006","agent":{"name":"A","goal":"G"},"tags":[`, `"`+madeUp["OpenAI"]+`%d",`, `""]}`, n), RuleSecret},

		{"keys", YAML, count("", "k%d: 1\n", "", n), RuleTooLarge},
		{"as many keys as are read", YAML, count("", "k%d: 1\n", "", maxYAMLMembers), RuleRequired},
		{"as many keys in braces", YAML, count("{", "k%d: 1, ", "}", maxYAMLMembers), RuleRequired},
		{"many items", YAML, fill("x:\n", "- 1\n", ""), RuleTooLarge},
		{"many items in brackets", YAML, fill("x: [", "1,", "1]"), RuleTooLarge},
		{"many brackets", YAML, fill("x: ", "[", ""), RuleTooLarge},
		{"items", YAML, tenth("x:\n", "- 1\n", ""), RuleRequired},
		{"items in brackets", YAML, tenth("x: [", "1,", "1]"), RuleRequired},
		{"dashes", YAML, tenth("x:\n", "- ", ""), RuleTooDeep},
		{"brackets", YAML, tenth("x: ", "[", ""), RuleTooDeep},
		{"braces", YAML, tenth("x: ", "{a: ", ""), RuleTooDeep},
		{"colons", YAML, tenth("", "a: ", ""), RuleTooDeep},
		{"questions", YAML, tenth("", "? ", ""), RuleYAML},
		{"anchors", YAML, tenth("", "&a ", ""), RuleYAML},
		{"tags", YAML, tenth("", "!a ", ""), RuleYAML},
		{"documents", YAML, tenth("", "---\n", ""), RuleYAML},
		{"comments", YAML, tenth("a: 1\n", "# c\n", ""), RuleRequired},
		{"a folded text", YAML, tenth("a: >\n", " x\n\n", ""), RuleRequired},
		{"an unquoted text", YAML, tenth("a: x\n", " x\n", ""), RuleRequired},
		{"a long text", YAML, fill("a: |\n", "  prose that a person may have written, line for line\n", ""), RuleRequired},
		{"a tower of indentation", YAML, tower(1100), RuleTooDeep},

		{"arrays", CBOR, fill("\xa1\x61a", "\x81", "\x01"), RuleTooDeep},
		{"maps", CBOR, fill("", "\xa1\x61a", "\x01"), RuleTooDeep},
		{"an array that claims to be long", CBOR, "\xa1\x61a\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", RuleSyntax},
		{"a text that claims to be long", CBOR, "\xa1\x7b\x7f\xff\xff\xff\xff\xff\xff\xff", RuleSyntax},
	} {
		t.Run(string(tt.format)+"/"+tt.name, func(t *testing.T) {
			problems := check([]byte(tt.text), Options{Format: tt.format})
			var got Rule
			if len(problems) > 0 {
				got = problems[0].Rule
			}
			diff(t, "first problem", got, tt.want)
			if len(problems) > maxProblems && problems[maxProblems].Rule != RuleTooMany {
				t.Errorf("%d problems, and the last is %v", len(problems), problems[len(problems)-1])
			}
		})
	}
}

// tower nests one mapping in another, each a column further to the right.
func tower(depth int) string {
	var b strings.Builder
	for i := range depth {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// TestNoSizeExhaustsTheStack reads documents that would overflow the stack of a
// recursive parser, at sizes that only a raised limit permits: a stack overflow
// crashes the whole process.
func TestNoSizeExhaustsTheStack(t *testing.T) {
	const n = 8 << 20
	opts := Options{MaxBytes: 2 * n, MaxDepth: 1 << 20}
	for _, tt := range []struct {
		format     Format
		head, unit string
		want       Rule
	}{
		{JSON, "", "[", RuleTooDeep},
		{JSON, "", `{"a":`, RuleTooDeep},
		{YAML, "", "k: 1\n", RuleTooLarge},
		{YAML, "a: ", "[", RuleTooLarge},
		{YAML, "a:\n", "- ", RuleTooLarge},
		{CBOR, "", "\x81", RuleTooDeep},
	} {
		opts.Format = tt.format
		problems := check([]byte(tt.head+strings.Repeat(tt.unit, n/len(tt.unit))), opts)
		if len(problems) != 1 || problems[0].Rule != tt.want {
			t.Errorf("%s %q: %v", tt.format, tt.unit, problems)
		}
	}
}
