package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/examples/code-reviewer/review"
)

func TestRules(t *testing.T) {
	t.Parallel()
	for name, src := range ruleTests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src = "package p\n" + src
			var want []string
			for i, line := range strings.Split(src, "\n") {
				if _, rule, ok := strings.Cut(line, "// want "); ok {
					want = append(want, fmt.Sprintf("a.go:%d %s", i+1, rule))
				}
			}
			if len(want) == 0 {
				t.Fatal("a rule that nothing breaks is not tested")
			}
			r, err := checkCode(t.Context(), write(t, map[string]string{"a.go": src}), ".")
			if err != nil {
				t.Fatal(err)
			}
			// Other rules may report the same lines.
			var got []string
			for _, f := range r.Findings {
				if strings.HasPrefix(f.Rule, name) {
					got = append(got, fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Rule))
				}
				if f.Rule == "syntax" {
					t.Fatalf("the test's source is no Go: %+v", f)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("findings\n got %v\nwant %v", got, want)
			}
		})
	}
}

func TestTypesAreKnownAcrossTheFilesOfAPackage(t *testing.T) {
	t.Parallel()
	root := write(t, map[string]string{
		"p/a.go":      "package p\n\nfunc work() error { return nil }\n",
		"p/b.go":      "package p\n\nfunc f() {\n\twork()\n}\n",
		"p/b_test.go": "package p_test\n\nfunc work() int { return 1 }\n\nfunc f() {\n\twork()\n}\n",
		"q/a.go":      "package q\n\nfunc work() int { return 1 }\n\nfunc f() {\n\twork()\n}\n",
	})
	r, err := checkCode(t.Context(), root, ".")
	if got, want := fmt.Sprint(places(r.Findings)), "[p/b.go:4 ignored-error]"; err != nil || got != want {
		t.Errorf("findings %s, error %v, want %s", got, err, want)
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("var _ = 1\n", 3000)
	for name, c := range map[string]struct{ src, want string }{
		"formatted":         {"package a\n\nvar x = 1\n", "[]"},
		"empty lines":       {"package a\n\n\n\nvar x = 1\n", "[3-4 gofmt]"},
		"one line":          {"package a\n\nvar x  = 1\nvar y = 1\n", "[3-3 gofmt]"},
		"two places":        {"package a\n\nvar x  = 1\n\nvar y = 1\n\nvar z=1\n", "[3-3 gofmt 7-7 gofmt]"},
		"no final newline":  {"package a\n\nvar x = 1", "[3-3 gofmt]"},
		"a line is missing": {"package a\nvar x = 1\n", "[2-2 gofmt]"},
		"trailing lines":    {"package a\n\nvar x = 1\n\n\n", "[4-5 gofmt]"},
		"carriage returns":  {"package a\r\n\r\nvar x = 1\r\n", "[1-3 gofmt]"},
		"large":             {"package a\n\n" + strings.ReplaceAll(long, " ", "  "), "[3-3002 gofmt]"},
		"syntax":            {"package a\n\nfunc {\n", "[3-3 syntax]"},
		"not Go":            {"<html>\n", "[1-1 syntax]"},
		"nothing":           {"", "[1-1 syntax]"},
	} {
		r, err := checkFormat(t.Context(), write(t, map[string]string{"a.go": c.src}), "a.go")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, f := range r.Findings {
			last := f.Line
			fmt.Sscanf(f.Message, "lines %d to %d", new(int), &last)
			got = append(got, fmt.Sprintf("%d-%d %s", f.Line, last, f.Rule))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: got %v, want %s", name, got, c.want)
		}
	}
}

func TestSyntaxErrorsQuoteNoLiterals(t *testing.T) {
	t.Parallel()
	r, err := checkFormat(t.Context(), write(t, map[string]string{"a.go": "package a\n\nvar x = 1 \"q7Zp-41fLx9\"\nimport `q7Zp`\n"}), ".")
	if err != nil || len(r.Findings) == 0 || strings.Contains(fmt.Sprint(r.Findings), "q7Zp") {
		t.Errorf("findings %+v, error %v", r.Findings, err)
	}
}

// The secrets here are put together at run time, so that no scanner, ours
// included, takes this file for a leak.
func TestStubsAreComplete(t *testing.T) {
	t.Parallel()
	s := newStubs()
	for name := range s.sources {
		if _, err := s.Import(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for path, want := range map[string]string{"example.com/a": "a", "example.com/a/v2": "a", "unsafe": "unsafe"} {
		if p, err := s.Import(path); err != nil || p.Name() != want {
			t.Errorf("%s: %v, %v", path, p, err)
		}
	}
}

func FuzzCheckers(f *testing.F) {
	for _, src := range ruleTests {
		f.Add("package p\n" + src)
	}
	f.Add(leaky)
	f.Fuzz(func(t *testing.T, src string) {
		root := write(t, map[string]string{"a.go": src})
		for _, check := range []func(context.Context, string, string) (*review.Report, error){checkFormat, checkCode, review.FindSecrets} {
			r, err := check(t.Context(), root, ".")
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.Findings {
				if f.Line < 1 || f.Column < 1 || f.Line > strings.Count(src, "\n")+1 {
					t.Errorf("finding %+v is nowhere", f)
				}
			}
		}
	})
}
