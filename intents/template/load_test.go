package template_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/aeemesh/aeemesh/intents/template"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	second := strings.Replace(base, "stay_v1", "stay_v2", 1)
	path := write("b.sdsi.json", base)
	write("a.sdsi.json", second)
	write("notes.json", "no template")
	got, err := template.Load(dir)
	if err != nil || len(got) != 2 || got[0].SchemaID != "stay_v2" || got[1].SchemaID != "stay_v1" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := template.Load(path); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := template.Load(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if got, err := template.Load(t.TempDir()); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestLoadListsTheProblemsOfAllFiles(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	value := func(schema string) *fstest.MapFile {
		return file(strings.Replace(base, `{"minimum": 1, "maximum": 30}`, schema, 1))
	}
	_, err := template.LoadFS(fstest.MapFS{
		"a.sdsi.json":        file(base),
		"again.sdsi.json":    file(base),
		"empty.sdsi.json":    file(""),
		"mark.sdsi.json":     file("\ufeff" + base),
		"large.sdsi.json":    file(base + strings.Repeat(" ", template.MaxBytes)),
		"typo.sdsi.json":     file(strings.Replace(base, `"default_value": 1`, `"default": 1`, 1)),
		"keyword.sdsi.json":  value(`{"minimun":3}`),
		"never.sdsi.json":    value(`{"minimum":5,"maximum":1}`),
		"nothing.sdsi.json":  value(`{"exclusiveMinimum":5,"maximum":5}`),
		"noted.sdsi.json":    file(strings.Replace(strings.Replace(base, "stay_v1", "stay_v4", 1), `{"minimum": 1, "maximum": 30}`, `{"minimum": 1, "maximum": 1, "x-form": {"widget": "slider", "$ref": "#"}}`, 1)),
		"unseen.sdsi.json":   value(`{"enum":[1,2],"x-note":"a\u200bb"}`),
		"required.sdsi.json": file(strings.Replace(base, `"required": false, "default_value": 1`, `"required": true, "default_value": 1`, 1)),
		"own.sdsi.json":      file(strings.Replace(strings.Replace(base, "stay_v1", "stay_v3", 1), `"default_value": 1`, `"x-default": 1`, 1)),
		"folder.sdsi.json/x": file(base),
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`keyword.sdsi.json is refused: /keys/1/value_schema/minimun: "minimun" is no keyword`, "  /keys/1/value_schema: no value fits it",
		"unseen.sdsi.json is refused: /keys/1/value_schema: has the character U+200B", "required.sdsi.json is refused: /keys/1/default_value: is never used", "again.sdsi.json is refused: /schema_id: a.sdsi.json has the same schema_id", "empty.sdsi.json is refused: (root): is empty", "mark.sdsi.json is refused: (root): begins with a byte order mark (save it as UTF-8 without one)",
		"large.sdsi.json is refused: (root): has more than", `typo.sdsi.json is refused: /keys/1/default: "default" is not known here`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
	if n := strings.Count(err.Error(), "no value fits it"); n != 2 {
		t.Errorf("%d templates have a range that nothing fits:\n%v", n, err)
	}
	for _, sound := range []string{"own.sdsi.json", "folder", "noted.sdsi.json"} {
		if strings.Contains(err.Error(), sound) {
			t.Errorf("%s: %v", sound, err)
		}
	}
}
