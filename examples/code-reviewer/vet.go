package main

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/examples/code-reviewer/review"
)

// pkg is a package under review, type-checked as far as possible.
type pkg struct {
	fset  *token.FileSet
	files []*ast.File
	info  *types.Info
	found []review.Finding
}

// checks are the rules; each checks one file of a package.
var checks = []func(*pkg, *ast.File){
	ignoredErrors,
	printfCalls,
	shadowedErrors,
	deferInLoops,
	copiedLocks,
	unreachableCode,
	typedNils,
	lostCancels,
	nilMaps,
	stringInts,
	unmarshalValues,
	selfOperations,
}

func checkCode(ctx context.Context, root, at string) (*review.Report, error) {
	files, skipped, err := review.ReadFiles(ctx, root, at, review.IsGo)
	if err != nil {
		return nil, err
	}
	var found []review.Finding
	// Files of one folder with the same package clause form a package.
	type key struct{ dir, name string }
	packages := make(map[key]*pkg)
	var order []key
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, f.Name, f.Data, parser.SkipObjectResolution)
		if err != nil {
			found = append(found, syntaxErrors(f.Name, err)...)
			continue
		}
		k := key{path.Dir(f.Name), file.Name.Name}
		p := packages[k]
		if p == nil {
			p = &pkg{fset: token.NewFileSet()}
			packages[k] = p
			order = append(order, k)
		}
		// Parse the file again with the package's own file set.
		if file, err = parser.ParseFile(p.fset, f.Name, f.Data, parser.SkipObjectResolution); err == nil {
			p.files = append(p.files, file)
		}
	}
	for _, k := range order {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p := packages[k]
		p.check(path.Join("under/review", k.dir, k.name))
		found = append(found, p.found...)
	}
	return review.NewReport(len(files), skipped, found), nil
}

// check type-checks the package and runs all checks. Type errors are expected:
// imports beyond the excerpt of the standard library stay unknown.
func (p *pkg) check(importPath string) {
	p.info = &types.Info{
		Types:      make(map[ast.Expr]types.TypeAndValue),
		Defs:       make(map[*ast.Ident]types.Object),
		Uses:       make(map[*ast.Ident]types.Object),
		Selections: make(map[*ast.SelectorExpr]*types.Selection),
		Scopes:     make(map[ast.Node]*types.Scope),
	}
	conf := types.Config{Importer: newStubs(), Error: func(error) {}, FakeImportC: true}
	_, _ = conf.Check(importPath, p.fset, p.files, p.info) // type errors are expected
	for _, f := range p.files {
		for _, check := range checks {
			check(p, f)
		}
	}
}

func (p *pkg) report(at ast.Node, rule string, severity review.Severity, message string) {
	pos := p.fset.Position(at.Pos())
	p.found = append(p.found, review.Finding{File: pos.Filename, Line: pos.Line, Column: pos.Column, Rule: rule, Severity: severity, Message: message})
}

// typeOf returns the type of an expression, or nil if it is not known.
func (p *pkg) typeOf(e ast.Expr) types.Type {
	t := p.info.TypeOf(e)
	if t == nil || t == types.Typ[types.Invalid] {
		return nil
	}
	return t
}

// callee returns the function that is called, or nil: a function or method
// that has a name.
func (p *pkg) callee(call *ast.CallExpr) *types.Func {
	var id *ast.Ident
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		id = fun
	case *ast.SelectorExpr:
		id = fun.Sel
	default:
		return nil
	}
	f, _ := p.info.Uses[id].(*types.Func)
	return f
}

// calls reports whether f is one of the functions, given as "fmt.Printf" or "(*log.Logger).Printf".
func calls(f *types.Func, names ...string) bool {
	if f == nil {
		return false
	}
	full := f.FullName()
	return slices.Contains(names, full)
}

// object returns what a plain identifier stands for, or nil.
func (p *pkg) object(e ast.Expr) types.Object {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok {
		return nil
	}
	if o := p.info.Uses[id]; o != nil {
		return o
	}
	return p.info.Defs[id]
}

var errorType = types.Universe.Lookup("error").Type()

func isError(t types.Type) bool { return t != nil && types.Identical(t, errorType) }

// bodies calls f for each function body of the file, literals too, with its
// signature.
func (p *pkg) bodies(file *ast.File, f func(sig *types.Signature, body *ast.BlockStmt)) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if o, ok := p.info.Defs[n.Name].(*types.Func); ok && n.Body != nil {
				f(o.Signature(), n.Body)
			}
		case *ast.FuncLit:
			if sig, ok := p.typeOf(n).(*types.Signature); ok {
				f(sig, n.Body)
			}
		}
		return true
	})
}

// within walks body without the function literals in it.
func within(body ast.Node, f func(ast.Node) bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok && n != body {
			return false
		}
		return f(n)
	})
}

// text returns a name or a dotted path of names, and "" for anything else, because messages must
// not quote literals.
func text(e ast.Expr) string {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if x := text(e.X); x != "" {
			return x + "." + e.Sel.Name
		}
	case *ast.StarExpr:
		if x := text(e.X); x != "" {
			return "*" + x
		}
	case *ast.IndexExpr:
		if x := text(e.X); x != "" && !strings.HasSuffix(x, "]") {
			return x + "[…]"
		}
	}
	return ""
}
