// Command house measures the packages of this module: production lines, the
// type with the most methods, and the largest circle of files.
//
// Two files are in one circle if each uses, directly or through other files of
// their package, a name that the other declares: a package-level name, a field
// or a method. The module is type-checked for this platform, so names that
// merely look alike do not count. Tests are left out.
//
//	go run ./cmd/aeemesh/internal/house [PATTERN...]
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	patterns := os.Args[1:]
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	if err := run(patterns); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

// run prints one line per package, the largest package first.
func run(patterns []string) error {
	loaded, err := load(patterns)
	if err != nil {
		return err
	}
	var all []figures
	for _, p := range loaded {
		all = append(all, measure(p))
	}
	slices.SortFunc(all, func(a, b figures) int { return cmp.Or(b.lines-a.lines, cmp.Compare(a.name, b.name)) })
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PACKAGE\tLINES\tFILES\tLARGEST TYPE\tMETHODS\tCIRCLE: FILES\tLINES")
	sum := 0
	for _, f := range all {
		sum += f.lines
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%d\t%d\t%d\n", f.name, f.lines, f.files, f.largest, f.methods, f.circle, f.circleLines)
	}
	fmt.Fprintf(w, "all\t%d\n", sum)
	return w.Flush()
}

// checked is a type-checked package.
type checked struct {
	name  string // its path from the root of the module
	files []string
	lines map[string]int // by file
	fset  *token.FileSet
	types *types.Package
	uses  map[*ast.Ident]types.Object
}

// load type-checks the packages of this module that match the patterns. What
// they import is read from the compiler's export data.
func load(patterns []string) ([]checked, error) {
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
		DepOnly                 bool
		Module                  *struct{ Path string }
	}
	cmd := exec.Command("go", append([]string{"list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles,DepOnly,Module"}, patterns...)...)
	cmd.Stderr = os.Stderr
	data, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	exports := map[string]string{}
	var ours []listed
	for dec := json.NewDecoder(bytes.NewReader(data)); dec.More(); {
		var p listed
		if err := dec.Decode(&p); err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly && p.Module != nil {
			ours = append(ours, p)
		}
	}
	fset := token.NewFileSet()
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	var out []checked
	for _, p := range ours {
		c := checked{name: cmp.Or(strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/"), "."), lines: map[string]int{}, fset: fset, uses: map[*ast.Ident]types.Object{}}
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			name = filepath.Join(p.Dir, name)
			src, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			c.files, parsed, c.lines[name] = append(c.files, name), append(parsed, file), bytes.Count(src, []byte("\n"))
		}
		if c.types, err = config.Check(p.ImportPath, fset, parsed, &types.Info{Uses: c.uses}); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// figures are what house measures of one package.
type figures struct {
	name                string
	lines, files        int
	largest             string // the type with the most methods
	methods             int
	circle, circleLines int // of the largest circle of files
}

func measure(p checked) figures {
	f := figures{name: p.name, files: len(p.files), largest: "-"}
	for _, n := range p.lines {
		f.lines += n
	}
	scope := p.types.Scope()
	for _, name := range scope.Names() {
		if t, ok := scope.Lookup(name).Type().(*types.Named); ok && t.NumMethods() > f.methods && t.Obj().Name() == name {
			f.largest, f.methods = name, t.NumMethods()
		}
	}
	for _, circle := range circles(p.files, uses(p)) {
		n := 0
		for _, file := range circle {
			n += p.lines[file]
		}
		if len(circle) > 1 && n > f.circleLines {
			f.circle, f.circleLines = len(circle), n
		}
	}
	return f
}

// uses returns, by file, the other files of the package whose names it uses.
func uses(p checked) map[string][]string {
	out := map[string][]string{}
	for id, obj := range p.uses {
		if obj.Pkg() != p.types || !shared(obj, p.types) {
			continue
		}
		from, to := p.fset.File(id.Pos()).Name(), p.fset.File(obj.Pos()).Name()
		if from != to && !slices.Contains(out[from], to) {
			out[from] = append(out[from], to)
		}
	}
	for from, list := range out {
		slices.Sort(list)
		out[from] = list
	}
	return out
}

// shared reports whether other files can see a name: it is package-level, a
// field or a method.
func shared(obj types.Object, pkg *types.Package) bool {
	switch o := obj.(type) {
	case *types.Var:
		return o.IsField() || o.Parent() == pkg.Scope()
	case *types.Func:
		return true
	}
	return obj.Parent() == pkg.Scope()
}

// circles returns the strongly connected components of the files, by Tarjan's
// algorithm.
func circles(files []string, to map[string][]string) (out [][]string) {
	index, low := map[string]int{}, map[string]int{}
	var stack []string
	var visit func(string)
	visit = func(v string) {
		index[v] = len(index) + 1
		low[v] = index[v]
		stack = append(stack, v)
		for _, w := range to[v] {
			switch {
			case index[w] == 0:
				visit(w)
				low[v] = min(low[v], low[w])
			case slices.Contains(stack, w):
				low[v] = min(low[v], index[w])
			}
		}
		if low[v] == index[v] {
			at := slices.Index(stack, v)
			out = append(out, slices.Clone(stack[at:]))
			stack = stack[:at]
		}
	}
	for _, f := range files {
		if index[f] == 0 {
			visit(f)
		}
	}
	return out
}
