package aaif

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

var hexComment = regexp.MustCompile(`#[^\n]*|\s`)

// check returns the errors for which Parse refuses a document, or, if there are none, the
// linter's warnings.
func check(data []byte, opts Options) []Problem {
	doc, problems := parse(data, opts)
	if len(problems) > 0 {
		return problems
	}
	return doc.Lint()
}

// TestCheck holds Parse and Lint to the documents and wants in testdata/check.
func TestCheck(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "check", "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			wants := make(map[string]string)
			for _, f := range archive.Files {
				if name, ok := strings.CutSuffix(f.Name, ".want"); ok {
					wants[name] = string(f.Data)
				}
			}
			out := &txtar.Archive{Comment: archive.Comment}
			for _, f := range archive.Files {
				ext := filepath.Ext(f.Name)
				if ext == ".want" {
					continue
				}
				name := strings.TrimSuffix(f.Name, ext)
				data, opts := f.Data, Options{Name: f.Name}
				if ext == ".hex" {
					opts.Format = CBOR
					if data, err = hex.DecodeString(hexComment.ReplaceAllString(string(f.Data), "")); err != nil {
						t.Fatalf("%s: %v", f.Name, err)
					}
				}
				var got strings.Builder
				for _, p := range check(data, opts) {
					got.WriteString(p.String() + "\n")
				}
				if got.Len() == 0 {
					got.WriteString("ok\n")
				}
				out.Files = append(out.Files, f, txtar.File{Name: name + ".want", Data: []byte(got.String())})
				if want := wants[name]; got.String() != want && !*update {
					t.Errorf("%s:\n got:\n%swant:\n%s", f.Name, got.String(), want)
				}
			}
			if *update {
				if err := os.WriteFile(path, txtar.Format(out), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
