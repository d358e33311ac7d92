package aaif

import (
	stdjson "encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

func TestLimits(t *testing.T) {
	minimal := []byte(`{"sc_standard": "SC-006", "agent": {"name": "A", "goal": "G"}}`)
	rule := func(data []byte, opts Options) Rule {
		t.Helper()
		_, err := Parse(data, opts)
		var e *Error
		if err == nil {
			return ""
		}
		if !errors.As(err, &e) || len(e.Problems) != 1 {
			t.Fatalf("%v", err)
		}
		return e.Problems[0].Rule
	}
	if got := rule(minimal, Options{MaxBytes: len(minimal)}); got != "" {
		t.Errorf("a document of the largest size: %s", got)
	}
	if got := rule(minimal, Options{MaxBytes: len(minimal) - 1}); got != RuleTooLarge {
		t.Errorf("a byte more: %s", got)
	}
	deep := func(n int) []byte {
		return []byte(`{"sc_standard": "SC-006", "agent": {"name": "A", "goal": "G"}, "x-d": ` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`)
	}
	for _, format := range []Format{JSON, YAML, CBOR} {
		encode := func(data []byte) []byte {
			if format != CBOR {
				return data
			}
			packed, err := encodeCBOR(tree(t, data))
			if err != nil {
				t.Fatal(err)
			}
			return packed
		}
		for _, limit := range []int{3, 64, 256} {
			if got := rule(encode(deep(limit)), Options{Format: format, MaxDepth: limit}); got != "" {
				t.Errorf("%s, %d deep: %s", format, limit, got)
			}
		}
		for _, limit := range []int{3, 64, 255} {
			if got := rule(encode(deep(limit+1)), Options{Format: format, MaxDepth: limit}); got != RuleTooDeep {
				t.Errorf("%s, %d deep: %q", format, limit+1, got)
			}
		}
	}
	if got := rule(deep(1000), Options{MaxDepth: 1000}); got != RuleTooDeep {
		t.Errorf("a limit of 1000 is taken as it is: %q", got)
	}
	if got := rule([]byte("{\"sc_standard\": \"\xff\"}"), Options{}); got != RuleEncoding {
		t.Errorf("JSON that is not UTF-8: %q", got)
	}
	if got := rule([]byte("sc_standard: \xff"), Options{Format: YAML}); got != RuleEncoding {
		t.Errorf("YAML that is not UTF-8: %q", got)
	}
	for _, format := range []Format{JSON, YAML} {
		if got := rule(append([]byte("\xef\xbb\xbf"), minimal...), Options{Format: format}); got != RuleSyntax {
			t.Errorf("%s with a byte order mark: %q", format, got)
		}
	}
	if got := rule([]byte(`{"x-n": 0.`+strings.Repeat("1", maxNumberLen)+`}`), Options{}); got != RuleNumberRange {
		t.Errorf("a number without end: %q", got)
	}
	if got := rule(minimal, Options{Format: "xml"}); got != RuleSyntax {
		t.Errorf("an unknown format: %q", got)
	}
	if got := rule(minimal, Options{Kind: "poem"}); got != RuleSyntax {
		t.Errorf("an unknown kind: %q", got)
	}
}

func TestRead(t *testing.T) {
	const text = `{"sc_standard": "SC-006", "agent": {"name": "A"}}`
	_, err := Read("a.json", strings.NewReader(text), Options{})
	if err == nil || err.Error() != `a.json:1:27: /agent: "goal" is missing` {
		t.Errorf("%v", err)
	}
	// The extension decides, and the reader is not read for ever.
	_, err = Read("a.cbor", strings.NewReader(text), Options{})
	if err == nil || !strings.Contains(err.Error(), "a.cbor: ") {
		t.Errorf("%v", err)
	}
	_, err = Read("endless", iotest.DataErrReader(endless{}), Options{MaxBytes: 1000})
	var e *Error
	if !errors.As(err, &e) || e.Problems[0].Rule != RuleTooLarge {
		t.Errorf("%v", err)
	}
	broken := errors.New("broken")
	if _, err = Read("x", iotest.ErrReader(broken), Options{}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestFormatsAreSniffed(t *testing.T) {
	for _, tt := range []struct {
		name, data string
		want       Format
	}{
		{"a.json", "a: b", JSON}, {"a.YML", "{}", YAML}, {"dir.json/a.yaml", "{}", YAML}, {"a.cbor", "{}", CBOR},
		{"", "{}", JSON}, {"-", " \n\t{}", JSON}, {"", "[]", JSON}, {"", "", JSON}, {"", "a: b", YAML}, {"a.txt", "# x", YAML},
		{"", "\xa0", CBOR}, {"", "\xbf", CBOR}, {"", "\x80", CBOR}, {"", "\xd9\xd9\xf7\xa0", CBOR}, {"", "\xd9\x85: b", YAML},
	} {
		if got := formatOf(tt.name, []byte(tt.data)); got != tt.want {
			t.Errorf("%q %q: %s, want %s", tt.name, tt.data, got, tt.want)
		}
	}
}

// Fault 16 of the operator's tour: a document of another kind was reported as
// one with seventeen unknown fields.
func TestADocumentOfAnotherKindIsNamed(t *testing.T) {
	t.Parallel()
	for kind, text := range map[Kind]string{
		KindState:    `{"sc_standard":"SC-006","state_id":"s","agent_id":"a","run_id":"r","checkpoint_at":"2026-01-01T00:00:00Z","status":"paused","conversation":[]}`,
		KindManifest: `{"sc_standard":"SC-006","platform":{"name":"p"}}`,
		KindReport:   `{"sc_standard":"SC-006","claims":[]}`,
		KindAgent:    `{"sc_standard":"SC-006","agent":{"name":"A","goal":"G"}}`,
	} {
		for _, want := range Kinds() {
			_, err := Parse([]byte(text), Options{Kind: want})
			var e *Error
			named := errors.As(err, &e) && e.Kind == kind && len(e.Problems) == 1 && strings.HasPrefix(e.Problems[0].Message, "it is a") && strings.Contains(e.Error(), want.article()+" is needed")
			if named != (kind != want) {
				t.Errorf("%s where %s is asked for: %v", kind, want, err)
			}
		}
	}
	for _, text := range []string{`{}`, `[]`, `{"sc_standard":"SC-006","name":"a"}`} { // of no known kind
		var e *Error
		if _, err := Parse([]byte(text), Options{Kind: KindState}); !errors.As(err, &e) || e.Kind != "" {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestKinds(t *testing.T) {
	for text, want := range map[string]Kind{
		`{"agent": {}}`:                  KindAgent,
		`{}`:                             KindAgent,
		`[]`:                             KindAgent,
		`{"state_id": "x"}`:              KindState,
		`{"checkpoint_at": "x"}`:         KindState,
		`{"platform": {}}`:               KindManifest,
		`{"platform": {}, "claims": []}`: KindReport,
		`{"x-sc-schema": "agent-state.schema.json"}`:                                KindState,
		`{"x-sc-schema": "https://a/b/platform-manifest.schema.json", "agent": {}}`: KindManifest,
		`{"x-sc-schema": "poem.schema.json", "claims": 1}`:                          KindReport,
		`{"x-sc-schema": 5}`: KindAgent,
	} {
		if got := kindOf(tree(t, []byte(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	// A caller that requests a kind gets it, or an error that names the
	// document's kind.
	_, err := Parse([]byte(`{"sc_standard": "SC-006", "sc_version": "3.4.0", "platform": {"name": "n", "version": "1", "aaif_conformance_level": "Core"}}`), Options{Kind: KindAgent})
	if err == nil || !strings.Contains(err.Error(), "an agent definition is needed") {
		t.Errorf("%v", err)
	}
}

func TestErrorText(t *testing.T) {
	var problems []Problem
	for i := range 25 {
		problems = append(problems, errorf(child("/agent/tags", i), RuleType, "this is wrong"))
	}
	e := &Error{Problems: problems}
	text := e.Error()
	if !strings.HasPrefix(text, "AAIF document: 25 problems\n  /agent/tags/0: this is wrong\n") || !strings.HasSuffix(text, "\n  and 5 more") {
		t.Errorf("%s", text)
	}
	text, err := "", error(&Error{Name: "a.yaml", Problems: []Problem{errorf("/a", RuleType, "wrong").hint("right")}})
	if text = err.Error(); text != "a.yaml: /a: wrong (right)" {
		t.Errorf("%s", text)
	}
	out, _ := stdjson.Marshal(Problem{Pointer: "/a", Rule: RuleType, Severity: SeverityError, Message: "m", Line: 3, Column: 4})
	if want := `{"pointer":"/a","rule":"type","severity":"error","message":"m","line":3,"column":4}`; string(out) != want {
		t.Errorf("%s", out)
	}
}

func TestProblemsAreSorted(t *testing.T) {
	w := warnf("/a", RuleID, "w")
	e2, e10, a, b := errorf("/x/2", RuleType, "m"), errorf("/x/10", RuleType, "m"), errorf("/x", RuleType, "a"), errorf("/x", RuleType, "b")
	diff(t, "order", sortProblems([]Problem{w, e10, b, e2, a, e2}), []Problem{a, b, e2, e10, w})
}
