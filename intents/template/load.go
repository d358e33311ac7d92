package template

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Suffix is the end of the names of template files in a folder.
const Suffix = ".sdsi.json"

// maxFiles is the most templates of one folder.
const maxFiles = 1_000

// Load reads the template of a file, or those of the files in a folder whose names end in [Suffix],
// ordered by file name. It is for the user's own templates, so it refuses unknown members, unless
// their names begin with x-. Two files with one schema_id are an error, because a version has one
// content. The error joins the problems of all files, an [*Error] for each; Load then still returns
// the valid templates.
func Load(path string) ([]*Template, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("load templates: %w", err)
	}
	if info.IsDir() {
		return loadFolder(os.DirFS(path), path)
	}
	return load(os.DirFS(filepath.Dir(path)), filepath.Dir(path), []string{filepath.Base(path)})
}

// loadFolder reads a folder; errors name it by dir.
func loadFolder(fsys fs.FS, dir string) ([]*Template, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("load templates: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), Suffix) && !entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return load(fsys, dir, names)
}

func load(fsys fs.FS, dir string, names []string) ([]*Template, error) {
	if len(names) > maxFiles {
		return nil, fmt.Errorf("load templates: more than %d files", maxFiles)
	}
	var all []*Template
	var problems []error
	from := map[string]string{}
	for _, name := range names {
		shown := filepath.Join(dir, name)
		t, err := loadOne(fsys, name, shown)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if first, twice := from[t.SchemaID]; twice {
			problems = append(problems, &Error{Subject: shown, Problems: []Problem{{Pointer: "/schema_id", Rule: "unique",
				Message: fmt.Sprintf("%s has the same schema_id %s", first, quoted(t.SchemaID)), Remedy: "give each version its own schema_id"}}})
			continue
		}
		from[t.SchemaID] = name
		all = append(all, t)
	}
	if len(problems) > 0 {
		return all, fmt.Errorf("load templates: %w", errors.Join(problems...))
	}
	return all, nil
}

func loadOne(fsys fs.FS, name, shown string) (*Template, error) {
	// Opening a named pipe blocks until there is a writer.
	if info, err := fs.Stat(fsys, name); err == nil && info.Mode()&fs.ModeNamedPipe != 0 && strings.HasSuffix(name, Suffix) {
		return nil, &Error{Subject: shown, Problems: []Problem{{Rule: "file", Message: "is a named pipe, and not a file"}}}
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown, err)
	}
	var r report
	t := r.parse(raw, true)
	if t != nil {
		r.own(t)
	}
	if err := r.err(shown); err != nil {
		return nil, err
	}
	return t.Complete(), nil
}
