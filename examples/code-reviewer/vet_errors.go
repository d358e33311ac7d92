package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/examples/code-reviewer/review"
)

// ignoredErrors finds calls whose error is ignored. "_ =" before a call is an explicit decision and
// is not reported.
func ignoredErrors(p *pkg, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		stmt, ok := n.(*ast.ExprStmt)
		if !ok {
			return true
		}
		call, ok := ast.Unparen(stmt.X).(*ast.CallExpr)
		if !ok {
			return true
		}
		t := p.typeOf(call)
		if tuple, ok := t.(*types.Tuple); ok && tuple.Len() > 0 {
			t = tuple.At(tuple.Len() - 1).Type()
		}
		if !isError(t) || neverFails(p.callee(call)) {
			return true
		}
		name := cmp.Or(text(call.Fun), "the call")
		severity := review.SeverityWarning
		if strings.HasSuffix(name, ".Close") { // often nothing can be done about it
			severity = review.SeverityInfo
		}
		p.report(call, "ignored-error", severity, fmt.Sprintf("the error of %s is ignored", name))
		return true
	})
}

// neverFails reports whether a function returns an error only to implement an interface, or writes
// to the terminal.
func neverFails(f *types.Func) bool {
	if f == nil {
		return false
	}
	name := f.FullName()
	prefixes := []string{"fmt.Print", "fmt.Fprint", "(*strings.Builder).", "(*bytes.Buffer).", "(hash.Hash"}
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// shadowedErrors finds an error variable that is declared again in an inner block and not used
// outside it, while the outer variable is read after that block.
func shadowedErrors(p *pkg, file *ast.File) {
	p.bodies(file, func(sig *types.Signature, body *ast.BlockStmt) {
		returned := make(map[types.Object]bool)
		uses := make(map[types.Object][]*ast.Ident)
		assigned := make(map[*ast.Ident]bool)
		bare := token.NoPos // the last return without operands
		ast.Inspect(body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if o := p.info.Uses[n]; o != nil {
					uses[o] = append(uses[o], n)
				}
			case *ast.AssignStmt:
				for _, l := range n.Lhs {
					if id, ok := l.(*ast.Ident); ok {
						assigned[id] = true
					}
				}
			case *ast.ReturnStmt:
				if len(n.Results) == 0 {
					bare = n.Pos()
				}
				for _, r := range n.Results {
					ast.Inspect(r, func(n ast.Node) bool {
						if id, ok := n.(*ast.Ident); ok {
							returned[p.info.Uses[id]] = true
						}
						return true
					})
				}
			}
			return true
		})
		named := make(map[types.Object]bool)
		for i := range sig.Results().Len() {
			named[sig.Results().At(i)] = true
		}
		check := func(block []ast.Stmt) {
			for _, stmt := range block {
				def, ok := stmt.(*ast.AssignStmt)
				if !ok || def.Tok != token.DEFINE {
					continue
				}
				for _, l := range def.Lhs {
					id, ok := l.(*ast.Ident)
					if !ok {
						continue
					}
					inner := p.info.Defs[id]
					if inner == nil || !isError(inner.Type()) || returned[inner] {
						continue
					}
					scope := inner.Parent()
					if scope == nil || scope.Parent() == nil {
						continue
					}
					_, outer := scope.Parent().LookupParent(id.Name, id.Pos())
					v, ok := outer.(*types.Var)
					if !ok || !isError(v.Type()) || v.Parent() == v.Pkg().Scope() {
						continue
					}
					read := named[v] && bare > scope.End()
					for _, use := range uses[v] {
						if use.Pos() > scope.End() {
							read = !assigned[use]
							break
						}
					}
					if read {
						p.report(id, "shadowed-error", review.SeverityWarning, fmt.Sprintf("%s hides the one declared at line %d, which is read later and knows nothing of this error",
							id.Name, p.fset.Position(v.Pos()).Line))
					}
				}
			}
		}
		within(body, func(n ast.Node) bool {
			check(statementsOf(n))
			return true
		})
	})
}

// typedNils finds a pointer that was never set, returned as an interface: the
// interface is not nil, though the pointer is.
func typedNils(p *pkg, file *ast.File) {
	p.bodies(file, func(sig *types.Signature, body *ast.BlockStmt) {
		unset := p.declaredWithoutValue(body, func(t types.Type) bool {
			_, ok := t.Underlying().(*types.Pointer)
			return ok
		})
		if len(unset) == 0 {
			return
		}
		within(body, func(n ast.Node) bool {
			ret, ok := n.(*ast.ReturnStmt)
			if !ok || len(ret.Results) != sig.Results().Len() {
				return true
			}
			for i, r := range ret.Results {
				if o := p.object(r); unset[o] && types.IsInterface(sig.Results().At(i).Type()) {
					p.report(r, "typed-nil", review.SeverityError, fmt.Sprintf("%s may be a nil pointer here, but as %s it is never equal to nil; return a plain nil",
						o.Name(), types.TypeString(sig.Results().At(i).Type(), (*types.Package).Name)))
				}
			}
			return true
		})
	})
}

// declaredWithoutValue returns the variables of a body that are declared by
// "var x T", for the types that are wanted.
func (p *pkg) declaredWithoutValue(body *ast.BlockStmt, want func(types.Type) bool) map[types.Object]bool {
	vars := make(map[types.Object]bool)
	within(body, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) > 0 {
			return true
		}
		for _, id := range spec.Names {
			if o := p.info.Defs[id]; o != nil && want(o.Type()) {
				vars[o] = true
			}
		}
		return true
	})
	delete(vars, nil)
	return vars
}
