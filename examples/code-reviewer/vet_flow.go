package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"

	"github.com/aeemesh/aeemesh/examples/code-reviewer/review"
)

// deferInLoops finds calls that each iteration of a loop defers to the function's end.
func deferInLoops(p *pkg, file *ast.File) {
	var loops func(n ast.Node, inLoop bool)
	loops = func(n ast.Node, inLoop bool) {
		ast.Inspect(n, func(m ast.Node) bool {
			switch m := m.(type) {
			case *ast.FuncLit:
				loops(m.Body, false)
				return false
			case *ast.ForStmt:
				if m != n {
					loops(m.Body, true)
					return false
				}
			case *ast.RangeStmt:
				if m != n {
					loops(m.Body, true)
					return false
				}
			case *ast.DeferStmt:
				if inLoop {
					p.report(m, "defer-in-loop", review.SeverityWarning, "deferred in a loop: it runs when the function returns, not when the loop turns")
				}
			}
			return true
		})
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			loops(f.Body, false)
		}
	}
}

// unreachableCode finds statements that follow a terminating statement.
func unreachableCode(p *pkg, file *ast.File) {
	check := func(list []ast.Stmt) {
		for i, s := range list[:max(len(list)-1, 0)] {
			if !p.terminates(s, "") {
				continue
			}
			switch next := list[i+1].(type) {
			case *ast.LabeledStmt, *ast.EmptyStmt: // a goto may lead there
			case *ast.DeclStmt: // a declaration executes nothing
			case *ast.ExprStmt:
				if !p.isPanic(next) { // panic("unreachable") is intended
					p.report(next, "unreachable", review.SeverityWarning, "this can never run")
				}
			default:
				p.report(next, "unreachable", review.SeverityWarning, "this can never run")
			}
			return
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		check(statementsOf(n))
		return true
	})
}

// statementsOf returns the statements of a block or a clause.
func statementsOf(n ast.Node) []ast.Stmt {
	switch n := n.(type) {
	case *ast.BlockStmt:
		return n.List
	case *ast.CaseClause:
		return n.Body
	case *ast.CommClause:
		return n.Body
	}
	return nil
}

// terminates reports whether no statement after s in its list can run. It follows "Terminating
// statements" of the Go specification, and adds break, continue and goto.
func (p *pkg) terminates(s ast.Stmt, label string) bool {
	switch s := s.(type) {
	case *ast.ReturnStmt:
		return true
	case *ast.BranchStmt:
		return s.Tok != token.FALLTHROUGH
	case *ast.ExprStmt:
		return p.isPanic(s)
	case *ast.BlockStmt:
		return p.endless(s.List)
	case *ast.LabeledStmt:
		return p.terminates(s.Stmt, s.Label.Name)
	case *ast.IfStmt:
		return s.Else != nil && p.endless(s.Body.List) && p.terminates(s.Else, "")
	case *ast.ForStmt:
		return s.Cond == nil && !hasBreak(s.Body, label, true)
	case *ast.SwitchStmt:
		return p.allTerminate(s.Body, label, true)
	case *ast.TypeSwitchStmt:
		return p.allTerminate(s.Body, label, true)
	case *ast.SelectStmt:
		return p.allTerminate(s.Body, label, false)
	}
	return false
}

func (p *pkg) endless(list []ast.Stmt) bool {
	return len(list) > 0 && p.terminates(list[len(list)-1], "")
}

func (p *pkg) allTerminate(body *ast.BlockStmt, label string, wantDefault bool) bool {
	hasDefault := !wantDefault
	for _, clause := range body.List {
		var list []ast.Stmt
		switch c := clause.(type) {
		case *ast.CaseClause:
			list = c.Body
			hasDefault = hasDefault || c.List == nil
		case *ast.CommClause:
			list = c.Body
		}
		if n := len(list); n > 0 {
			if b, ok := list[n-1].(*ast.BranchStmt); ok && b.Tok == token.FALLTHROUGH {
				continue
			}
		}
		if !p.endless(list) || hasBreak(&ast.BlockStmt{List: list}, label, true) {
			return false
		}
	}
	return hasDefault
}

// hasBreak reports whether a break in n leaves the statement around n, which may have a label.
func hasBreak(n ast.Node, label string, plain bool) (found bool) {
	ast.Inspect(n, func(m ast.Node) bool {
		switch m := m.(type) {
		case *ast.BranchStmt:
			if m.Tok == token.BREAK && (m.Label == nil && plain || m.Label != nil && m.Label.Name == label) {
				found = true
			}
		case *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
			if m != n {
				// A plain break in there leaves that inner statement.
				for _, inner := range bodyOf(m) {
					found = found || hasBreak(inner, label, false)
				}
				return false
			}
		case *ast.FuncLit:
			return false
		}
		return !found
	})
	return found
}

func bodyOf(n ast.Node) []ast.Stmt {
	switch n := n.(type) {
	case *ast.ForStmt:
		return n.Body.List
	case *ast.RangeStmt:
		return n.Body.List
	case *ast.SwitchStmt:
		return n.Body.List
	case *ast.TypeSwitchStmt:
		return n.Body.List
	case *ast.SelectStmt:
		return n.Body.List
	}
	return nil
}

func (p *pkg) isPanic(s *ast.ExprStmt) bool {
	call, ok := ast.Unparen(s.X).(*ast.CallExpr)
	if !ok {
		return false
	}
	b, ok := p.object(call.Fun).(*types.Builtin)
	return ok && b.Name() == "panic"
}

// lostCancels finds contexts whose cancel function is thrown away.
func lostCancels(p *pkg, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.AssignStmt)
		if !ok || len(s.Lhs) != 2 || len(s.Rhs) != 1 {
			return true
		}
		call, ok := s.Rhs[0].(*ast.CallExpr)
		if id, blank := s.Lhs[1].(*ast.Ident); !ok || !blank || id.Name != "_" {
			return true
		}
		if f := p.callee(call); calls(f, "context.WithCancel", "context.WithTimeout", "context.WithDeadline", "context.WithCancelCause") {
			p.report(s.Lhs[1], "lost-cancel", review.SeverityWarning, fmt.Sprintf("the cancel function of %s is thrown away, so the context leaks", f.Name()))
		}
		return true
	})
}

// selfOperations finds x = x and x == x, except for floats, for which x != x tests for NaN.
func selfOperations(p *pkg, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.ASSIGN || len(n.Lhs) != len(n.Rhs) {
				return true
			}
			for i := range n.Lhs {
				if x := text(n.Lhs[i]); x != "" && x != "_" && x == plain(n.Rhs[i]) && plain(n.Lhs[i]) == x {
					p.report(n.Lhs[i], "self-assignment", review.SeverityWarning, fmt.Sprintf("%s is assigned to itself", x))
				}
			}
		case *ast.BinaryExpr:
			switch n.Op {
			case token.EQL, token.NEQ, token.LSS, token.GTR, token.LEQ, token.GEQ, token.LAND, token.LOR, token.SUB:
			default:
				return true
			}
			x := plain(n.X)
			if x == "" || x != plain(n.Y) {
				return true
			}
			if t := p.typeOf(n.X); t == nil || isFloat(t) {
				return true
			}
			if id, ok := ast.Unparen(n.X).(*ast.Ident); ok && p.info.Types[id].Value != nil {
				return true // constants
			}
			p.report(n, "self-comparison", review.SeverityWarning, fmt.Sprintf("both sides of %s are %s", n.Op, x))
		}
		return true
	})
}

// plain is text for expressions whose value cannot change within one statement: without index and
// dereference.
func plain(e ast.Expr) string {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if x := plain(e.X); x != "" {
			return x + "." + e.Sel.Name
		}
	}
	return ""
}

func isFloat(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return !ok && types.IsInterface(t) || ok && b.Info()&(types.IsFloat|types.IsComplex) != 0
}
