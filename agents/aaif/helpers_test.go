package aaif

import (
	stdjson "encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// published is the directory of the published AAIF schemas and conformance documents, which stands next to the
// module on the machines that have it; "": it does not. Nothing of it is kept here: our own documents, in testdata,
// hold the same rules, and the tests that need the published ones hold ours to them.
func published(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test's directory")
		}
		dir = parent
	}
	path := filepath.Join(dir, "..", "shared", "conformance", "aaif")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// corpus is published for tests of nothing else.
func corpus(t testing.TB) string {
	t.Helper()
	path := published(t)
	if path == "" {
		t.Skip("the published AAIF corpus is not on this machine; testdata/rules holds the same rules")
	}
	return path
}

// corpusFiles returns the corpus documents of a verdict, "valid" or "invalid", by file name.
func corpusFiles(t testing.TB, verdict string) map[string][]byte {
	t.Helper()
	files := readAll(t, filepath.Join(corpus(t), "tests", "conformance", verdict, "*.json"))
	if len(files) == 0 {
		t.Fatalf("the corpus has no %s documents", verdict)
	}
	return files
}

// fullDocuments returns our own documents, one of each kind with every field in it.
func fullDocuments(t testing.TB) map[string][]byte {
	t.Helper()
	return readAll(t, filepath.Join("testdata", "full", "*.json"))
}

func readAll(t testing.TB, pattern string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string][]byte)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(path)] = data
	}
	return files
}

func mustParse(t testing.TB, data []byte, opts Options) *Document {
	t.Helper()
	doc, err := Parse(data, opts)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// tree decodes JSON for comparison, with the digits of its numbers.
func tree(t testing.TB, data []byte) any {
	t.Helper()
	v, problems := decodeJSON(data, maxMaxDepth)
	if problems != nil {
		t.Fatalf("%s: %v", data, problems)
	}
	return v
}

// values is a tree with its numbers as values: 1.50 and 1.5 are the same.
func values(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for name, item := range v {
			m[name] = values(item)
		}
		return m
	case []any:
		s := make([]any, len(v))
		for i, item := range v {
			s[i] = values(item)
		}
		return s
	case stdjson.Number:
		return "number " + decimal(string(v))
	}
	return v
}

func diff(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// withoutPlaces drops lines and columns.
func withoutPlaces(problems []Problem) []Problem {
	out := make([]Problem, len(problems))
	for i, p := range problems {
		p.Line, p.Column = 0, 0
		out[i] = p
	}
	return out
}

// decimal normalises a JSON number: sign, significant digits, exponent of ten.
func decimal(lit string) string {
	sign := ""
	if lit[0] == '-' {
		sign, lit = "-", lit[1:]
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(lit), "e")
	exp, _ := strconv.Atoi(exponent) // within a double's range, so within an int's
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	exp -= len(fraction)
	trimmed := strings.TrimRight(digits, "0")
	exp += len(digits) - len(trimmed)
	if trimmed == "" {
		return sign + "0"
	}
	return sign + trimmed + "e" + strconv.Itoa(exp)
}
