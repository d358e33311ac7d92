package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"strings"

	"github.com/aeemesh/aeemesh/examples/code-reviewer/review"
)

// formatArg has the index of the format argument for each function with one.
var formatArg = map[string]int{
	"fmt.Printf": 0, "fmt.Sprintf": 0, "fmt.Errorf": 0, "fmt.Fprintf": 1, "fmt.Appendf": 1,
	"log.Printf": 0, "log.Fatalf": 0, "log.Panicf": 0,
	"(*log.Logger).Printf": 0, "(*log.Logger).Fatalf": 0, "(*log.Logger).Panicf": 0,
	"(*testing.common).Errorf": 0, "(*testing.common).Fatalf": 0, "(*testing.common).Logf": 0, "(*testing.common).Skipf": 0,
}

// printfCalls compares formats with their arguments.
func printfCalls(p *pkg, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || call.Ellipsis.IsValid() {
			return true
		}
		f := p.callee(call)
		if f == nil {
			return true
		}
		at, ok := formatArg[f.FullName()]
		if !ok || len(call.Args) <= at {
			return true
		}
		v := p.info.Types[call.Args[at]].Value
		if v == nil || v.Kind() != constant.String {
			return true
		}
		verbs, ok := parseFormat(constant.StringVal(v))
		if !ok {
			return true
		}
		args := call.Args[at+1:]
		for i, v := range verbs {
			if i >= len(args) {
				p.report(call, "printf", review.SeverityError, fmt.Sprintf("%s wants %d arguments and has %d", f.Name(), len(verbs), len(args)))
				return true
			}
			if problem := p.fits(v, args[i], f.Name()); problem != "" {
				p.report(args[i], "printf", review.SeverityError, problem)
			}
		}
		if len(args) > len(verbs) {
			p.report(call, "printf", review.SeverityError, fmt.Sprintf("%s wants %d arguments and has %d", f.Name(), len(verbs), len(args)))
		}
		return true
	})
}

// parseFormat returns the verbs of a format, with '*' for a width or precision
// that is an argument. It gives up on explicit argument indexes.
func parseFormat(format string) (verbs []rune, ok bool) {
	rest := []rune(format)
	for len(rest) > 0 {
		c := rest[0]
		rest = rest[1:]
		if c != '%' {
			continue
		}
		for len(rest) > 0 && strings.ContainsRune("+-# 0123456789.*", rest[0]) {
			if rest[0] == '*' {
				verbs = append(verbs, '*')
			}
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return append(verbs, '!'), true
		}
		if rest[0] == '[' {
			return nil, false
		}
		if rest[0] != '%' {
			verbs = append(verbs, rest[0])
		}
		rest = rest[1:]
	}
	return verbs, true
}

const (
	anInt    = types.IsInteger
	aFloat   = types.IsFloat | types.IsComplex
	aString  = types.IsString
	aBool    = types.IsBoolean
	anything = types.BasicInfo(-1)
)

// accepts has the basic types that a verb accepts.
var accepts = map[rune]types.BasicInfo{
	'v': anything, 'T': anything, 'p': anything, 'w': anything,
	't': aBool, '*': anInt,
	'd': anInt, 'o': anInt, 'O': anInt, 'c': anInt, 'U': anInt,
	'b': anInt | aFloat,
	'x': anInt | aFloat | aString, 'X': anInt | aFloat | aString,
	'e': aFloat, 'E': aFloat, 'f': aFloat, 'F': aFloat, 'g': aFloat, 'G': aFloat,
	's': aString, 'q': aString | anInt,
}

// fits returns why arg does not fit the verb; "" if it fits.
func (p *pkg) fits(verb rune, arg ast.Expr, fn string) string {
	if verb == '!' {
		return fmt.Sprintf("the format of %s ends within a verb", fn)
	}
	want, ok := accepts[verb]
	if !ok {
		return fmt.Sprintf("%s has no verb %%%c", fn, verb)
	}
	t := p.typeOf(arg)
	if verb == 'w' {
		switch {
		case fn != "Errorf":
			return fmt.Sprintf("%s has no verb %%w; only Errorf has", fn)
		case t != nil && !types.IsInterface(t) && !types.Implements(t, errorType.Underlying().(*types.Interface)):
			return "%w wants an error"
		}
		return ""
	}
	if t == nil || want == anything {
		return ""
	}
	basic, ok := t.Underlying().(*types.Basic)
	if !ok || basic.Kind() == types.UntypedNil || basic.Kind() == types.Uintptr || basic.Kind() == types.UnsafePointer {
		return "" // composite values print element by element
	}
	if basic.Info()&want != 0 || verb != '*' && formatsItself(t) {
		return ""
	}
	return fmt.Sprintf("%%%c of %s does not fit the type %s", verb, fn, types.TypeString(t, (*types.Package).Name))
}

// formatsItself reports whether a type has a method that fmt would use.
func formatsItself(t types.Type) bool {
	for _, name := range []string{"String", "Error", "Format"} {
		if o, _, _ := types.LookupFieldOrMethod(t, true, nil, name); o != nil {
			if _, ok := o.(*types.Func); ok {
				return true
			}
		}
	}
	return false
}
