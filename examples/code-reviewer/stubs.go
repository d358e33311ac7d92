package main

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"

	"golang.org/x/tools/txtar"

	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// stubText is an excerpt of the standard library: declarations without bodies, one file a package.
// Anything missing there has no known type, and the rules report nothing about it.
//
//go:embed stubs.txtar
var stubText []byte

// stubs imports packages from the excerpt, and any other package as an empty one. It is for one
// type check.
type stubs struct {
	sources  map[string][]byte
	packages map[string]*types.Package
}

func newStubs() *stubs {
	s := &stubs{sources: make(map[string][]byte), packages: make(map[string]*types.Package)}
	for _, f := range txtar.Parse(stubText).Files {
		s.sources[f.Name] = f.Data
	}
	return s
}

// Import implements types.Importer.
func (s *stubs) Import(importPath string) (*types.Package, error) {
	if importPath == "unsafe" {
		return types.Unsafe, nil
	}
	if p := s.packages[importPath]; p != nil {
		return p, nil
	}
	src, ok := s.sources[importPath]
	if !ok {
		p := types.NewPackage(importPath, packageName(importPath))
		p.MarkComplete()
		s.packages[importPath] = p
		return p, nil
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, importPath, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("stub of %s: %w", importPath, err)
	}
	conf := types.Config{Importer: s, IgnoreFuncBodies: true}
	p, err := conf.Check(importPath, fset, []*ast.File{file}, nil)
	if err != nil {
		return nil, fmt.Errorf("stub of %s: %w", importPath, err)
	}
	s.packages[importPath] = p
	return p, nil
}

var version = pattern.Of(`^v[0-9]+$`)

// packageName guesses a package's name from its import path.
func packageName(importPath string) string {
	base := path.Base(importPath)
	if version.RE().MatchString(base) {
		base = path.Base(path.Dir(importPath))
	}
	return base
}
