package intents

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/intents/schema"
)

// maxFolder is the most intents that one folder may define.
const maxFolder = 5_000

const schemaSuffix = ".schema.json"

// ReadFS reads definitions from the top folder of a file system with the layout that the
// draft recommends: <intent>.task.schema.json, <intent>.result.schema.json and
// <intent>.error.schema.json, each optional. It ignores folders and files that do not end
// in .schema.json. A schema file without a variant in its name is an error, because that
// slip would leave payloads unvalidated. ReadFS does not compile the schemas;
// [Registry.Register] does. The definitions are sorted by name.
func ReadFS(fsys fs.FS) ([]Definition, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		if at := (*fs.PathError)(nil); errors.As(err, &at) {
			err = at.Err // the path is ".", and the caller knows the folder
		}
		return nil, fmt.Errorf("read intent schemas: %w", err)
	}
	found := map[string]*Definition{}
	var problems []error
	for _, entry := range entries {
		base, isSchema := strings.CutSuffix(entry.Name(), schemaSuffix)
		if !isSchema || entry.IsDir() {
			continue
		}
		dot := strings.LastIndexByte(base, '.')
		v := Variant(base[dot+1:])
		if dot < 0 || v.index() < 0 {
			problems = append(problems, fmt.Errorf("%s: a schema file is named <intent>.task%s, .result%s or .error%s", entry.Name(), schemaSuffix, schemaSuffix, schemaSuffix))
			continue
		}
		raw, err := readBounded(fsys, entry.Name())
		if err != nil {
			problems = append(problems, err)
			continue
		}
		d := found[base[:dot]]
		if d == nil {
			if len(found) == maxFolder {
				problems = append(problems, fmt.Errorf("more than %d intents in one folder", maxFolder))
				break
			}
			d = &Definition{Intent: base[:dot]}
			found[d.Intent] = d
		}
		switch v {
		case Task:
			d.Task = raw
		case Result:
			d.Result = raw
		case Error:
			d.Error = raw
		}
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("read intent schemas: %w", errors.Join(problems...))
	}
	definitions := make([]Definition, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		definitions = append(definitions, *found[name])
	}
	return definitions, nil
}

// readBounded reads a file up to the size limit of a schema. An empty file is an error:
// treated as no schema, it would leave payloads unvalidated.
func readBounded(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, schema.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	switch text := strings.TrimSpace(string(raw)); {
	case len(raw) > schema.MaxBytes:
		return nil, fmt.Errorf("%s: is larger than %d bytes", name, schema.MaxBytes)
	case text == "" || text == "null":
		return nil, fmt.Errorf("%s: holds no schema", name)
	}
	return raw, nil
}

// LoadFS registers what [ReadFS] finds and returns the names, sorted. After any error
// nothing is registered.
func (r *Registry) LoadFS(fsys fs.FS) ([]string, error) {
	definitions, err := ReadFS(fsys)
	if err != nil {
		return nil, err
	}
	if err := r.Register(definitions...); err != nil {
		return nil, err
	}
	names := make([]string, len(definitions))
	for i, d := range definitions {
		names[i] = d.Intent
	}
	return names, nil
}

// LoadDir is [Registry.LoadFS] for a folder on disk.
func (r *Registry) LoadDir(dir string) ([]string, error) {
	names, err := r.LoadFS(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("intents in %s: %w", dir, err)
	}
	return names, nil
}
