package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"github.com/aeemesh/aeemesh/examples/code-reviewer/review"
)

// copiedLocks finds locks that are copied together with the value that contains them.
func copiedLocks(p *pkg, file *ast.File) {
	field := func(f *ast.Field, what string) {
		t := p.typeOf(f.Type)
		if lock := lockIn(t, 0); lock != "" {
			p.report(f, "copied-lock", review.SeverityError, fmt.Sprintf("this %s is a copy of a %s; use a pointer", what, lock))
		}
	}
	value := func(e ast.Expr) {
		switch ast.Unparen(e).(type) {
		case *ast.Ident, *ast.SelectorExpr, *ast.IndexExpr, *ast.StarExpr:
		default: // a literal, or the result of a call, is not shared
			return
		}
		if tv, ok := p.info.Types[e]; !ok || !tv.IsValue() {
			return
		}
		if lock := lockIn(p.typeOf(e), 0); lock != "" {
			p.report(e, "copied-lock", review.SeverityError, fmt.Sprintf("this copies a %s; use a pointer", lock))
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv != nil {
				for _, f := range n.Recv.List {
					field(f, "receiver")
				}
			}
		case *ast.FuncType:
			for _, f := range n.Params.List {
				field(f, "parameter")
			}
		case *ast.AssignStmt:
			for i, r := range n.Rhs {
				if id, ok := n.Lhs[min(i, len(n.Lhs)-1)].(*ast.Ident); ok && id.Name == "_" {
					continue
				}
				value(r)
			}
		case *ast.ValueSpec:
			for _, v := range n.Values {
				value(v)
			}
		case *ast.CompositeLit:
			for _, e := range n.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok {
					e = kv.Value
				}
				value(e)
			}
		case *ast.CallExpr:
			if f, ok := p.object(n.Fun).(*types.Builtin); ok && (f.Name() == "len" || f.Name() == "cap" || f.Name() == "new") {
				return true
			}
			for _, a := range n.Args {
				value(a)
			}
		case *ast.ReturnStmt:
			for _, r := range n.Results {
				value(r)
			}
		case *ast.RangeStmt:
			if id, ok := n.Value.(*ast.Ident); ok && id.Name != "_" {
				if o := p.object(id); o != nil {
					if lock := lockIn(o.Type(), 0); lock != "" {
						p.report(id, "copied-lock", review.SeverityError, fmt.Sprintf("each turn of the loop copies a %s; range over the index", lock))
					}
				}
			}
		}
		return true
	})
}

var locks = []string{"Mutex", "RWMutex", "WaitGroup", "Once", "Cond", "Map", "Pool"}

// lockIn returns the name of the lock that a value of type t contains, or "".
func lockIn(t types.Type, depth int) string {
	if t == nil || depth > 16 {
		return ""
	}
	t = types.Unalias(t)
	if n, ok := t.(*types.Named); ok {
		if o := n.Obj(); o.Pkg() != nil && o.Pkg().Path() == "sync" && slices.Contains(locks, o.Name()) {
			return "sync." + o.Name()
		}
	}
	if _, ok := t.(*types.TypeParam); ok {
		return ""
	}
	switch u := t.Underlying().(type) {
	case *types.Struct:
		for i := range u.NumFields() {
			if lock := lockIn(u.Field(i).Type(), depth+1); lock != "" {
				return lock
			}
		}
	case *types.Array:
		return lockIn(u.Elem(), depth+1)
	}
	return ""
}

// nilMaps finds writes to a map that is declared but never made.
func nilMaps(p *pkg, file *ast.File) {
	p.bodies(file, func(_ *types.Signature, body *ast.BlockStmt) {
		unset := p.declaredWithoutValue(body, func(t types.Type) bool {
			_, ok := t.Underlying().(*types.Map)
			return ok
		})
		if len(unset) == 0 {
			return
		}
		// If the variable is assigned or its address is taken anywhere, the map may have been made.
		ast.Inspect(body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, l := range n.Lhs {
					delete(unset, p.object(l))
				}
			case *ast.RangeStmt:
				for _, e := range []ast.Expr{n.Key, n.Value} {
					if e != nil {
						delete(unset, p.object(e))
					}
				}
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					delete(unset, p.object(n.X))
				}
			}
			return true
		})
		ast.Inspect(body, func(n ast.Node) bool {
			var targets []ast.Expr
			switch n := n.(type) {
			case *ast.AssignStmt:
				targets = n.Lhs
			case *ast.IncDecStmt:
				targets = []ast.Expr{n.X}
			}
			for _, l := range targets {
				if ix, ok := ast.Unparen(l).(*ast.IndexExpr); ok && unset[p.object(ix.X)] {
					p.report(l, "nil-map", review.SeverityError, fmt.Sprintf("%s was never made, so writing to it panics", text(ix.X)))
				}
			}
			return true
		})
	})
}

// stringInts finds string(n) of an integer, which is the rune with that number.
func stringInts(p *pkg, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 || !p.info.Types[call.Fun].IsType() {
			return true
		}
		to, ok := p.info.Types[call.Fun].Type.Underlying().(*types.Basic)
		if !ok || to.Kind() != types.String {
			return true
		}
		t := p.typeOf(call.Args[0])
		if t == nil {
			return true
		}
		from, ok := t.Underlying().(*types.Basic)
		if ok && from.Info()&types.IsInteger != 0 && from.Kind() != types.Rune && from.Kind() != types.Byte && from.Kind() != types.UntypedRune {
			p.report(call, "string-int", review.SeverityWarning, "this makes a string of one rune, not of digits; use strconv.Itoa")
		}
		return true
	})
}

// unmarshalValues finds decoders that get something other than a pointer.
func unmarshalValues(p *pkg, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		f := p.callee(call)
		if !calls(f, "encoding/json.Unmarshal", "(*encoding/json.Decoder).Decode") {
			return true
		}
		target := call.Args[len(call.Args)-1]
		t := p.typeOf(target)
		if t == nil {
			return true
		}
		switch t.Underlying().(type) {
		case *types.Pointer, *types.Interface:
			return true
		}
		p.report(target, "unmarshal-value", review.SeverityError, fmt.Sprintf("%s needs a pointer, and fails with this", f.Name()))
		return true
	})
}
