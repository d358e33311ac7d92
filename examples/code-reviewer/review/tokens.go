package review

import (
	"context"
	"go/scanner"
	"go/token"
	"path"
	"slices"
)

// lexeme is a token of a file.
type lexeme struct {
	tok  token.Token
	text string // of a name or a literal; "\n" of a semicolon that the scanner adds
	pos  token.Position
}

// lex reads the tokens of a file, without comments, and up to three errors.
func lex(f Source) (list []lexeme, found []Finding) {
	fset := token.NewFileSet()
	file := fset.AddFile(f.Name, -1, len(f.Data))
	var s scanner.Scanner
	s.Init(file, f.Data, func(at token.Position, _ string) { // the message may quote a literal
		if at = file.PositionFor(file.Pos(at.Offset), false); len(found) < 3 { // ignore //line comments
			found = append(found, Finding{f.Name, max(at.Line, 1), max(at.Column, 1), "syntax", SeverityError, "the file is not Go"})
		}
	}, 0)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return list, found
		}
		list = append(list, lexeme{tok, text, file.PositionFor(pos, false)})
	}
}

// statement is a run of tokens up to a semicolon, a brace or the colon of a case.
type statement struct {
	head  []lexeme
	loop  bool // inside a loop of the same function
	whole bool // it ends with a semicolon, not with a brace or a colon
}

// statements splits tokens into statements. The words before its opening brace tell whether a block
// belongs to a loop or a function.
func statements(list []lexeme) (out []statement) {
	type block struct{ loop bool }
	blocks := []block{{}}
	var head []lexeme
	flush := func(whole bool) {
		if len(head) > 0 {
			out = append(out, statement{head, blocks[len(blocks)-1].loop, whole})
		}
		head = nil
	}
	for _, l := range list {
		switch l.tok {
		case token.SEMICOLON:
			flush(true)
		case token.COLON:
			if head = append(head, l); head[0].tok == token.CASE || head[0].tok == token.DEFAULT {
				flush(false)
			}
		case token.LBRACE:
			inside := blocks[len(blocks)-1]
			switch {
			case slices.ContainsFunc(head, func(l lexeme) bool { return l.tok == token.FUNC }):
				inside.loop = false
			case len(head) > 0 && head[0].tok == token.FOR:
				inside.loop = true
			}
			flush(false)
			blocks = append(blocks, inside)
		case token.RBRACE:
			flush(false)
			blocks = blocks[:max(len(blocks)-1, 1)]
			head = []lexeme{l}
		default:
			head = append(head, l)
		}
	}
	flush(false)
	return out
}

// CheckTokens reports mistakes that compile and that are visible in tokens: see the table in the
// package comment.
func CheckTokens(ctx context.Context, root, at string) (*Report, error) {
	files, skipped, err := ReadFiles(ctx, root, at, IsGo)
	if err != nil {
		return nil, err
	}
	var found []Finding
	read := make(map[string][]lexeme)
	locked := make(map[string]map[string]string) // by folder: the lock in each struct, by the struct's name
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		list, bad := lex(f)
		if found = append(found, bad...); len(bad) > 0 {
			continue
		}
		read[f.Name] = list
		dir := path.Dir(f.Name)
		if locked[dir] == nil {
			locked[dir] = make(map[string]string)
		}
		findLocks(list, locked[dir])
	}
	for name, list := range read {
		report := func(at lexeme, rule string, severity Severity, message string) {
			found = append(found, Finding{name, at.pos.Line, at.pos.Column, rule, severity, message})
		}
		copiedReceivers(list, locked[path.Dir(name)], report)
		all := statements(list)
		for i, s := range all {
			s.check(report)
			if i+1 < len(all) {
				unreachable(s, all[i+1], report)
			}
		}
	}
	return NewReport(len(files), skipped, found), nil
}

// reporter records a finding at a token.
type reporter func(at lexeme, rule string, severity Severity, message string)

// begins reports whether the list begins with the tokens want.
func begins(list []lexeme, want ...token.Token) bool {
	return len(list) >= len(want) && slices.EqualFunc(list[:len(want)], want, func(l lexeme, t token.Token) bool { return l.tok == t })
}

// findLocks records the structs that contain a lock of package sync by value.
func findLocks(list []lexeme, locked map[string]string) {
	name, depth := "", 0
	for i, l := range list {
		switch {
		case begins(list[i:], token.TYPE, token.IDENT, token.STRUCT, token.LBRACE):
			name, depth = list[i+1].text, 0
		case l.tok == token.LBRACE:
			depth++
		case l.tok == token.RBRACE:
			if depth--; depth == 0 {
				name = ""
			}
		case name != "" && i > 0 && list[i-1].tok != token.MUL && begins(list[i:], token.IDENT, token.PERIOD, token.IDENT, token.SEMICOLON) &&
			l.text == "sync" && slices.Contains([]string{"Mutex", "RWMutex", "WaitGroup", "Once"}, list[i+2].text):
			locked[name] = "sync." + list[i+2].text
		}
	}
}

// copiedReceivers finds methods whose receiver is a copy of a struct with a lock.
func copiedReceivers(list []lexeme, locked map[string]string, report reporter) {
	for i := range list {
		if !begins(list[i:], token.FUNC, token.LPAREN, token.IDENT, token.IDENT, token.RPAREN, token.IDENT) {
			continue
		}
		if lock := locked[list[i+3].text]; lock != "" {
			report(list[i+2], "copied-lock", SeverityError, "this receiver is a copy of a "+lock+"; use a pointer")
		}
	}
}

// check checks one statement by itself.
func (s statement) check(report reporter) {
	h := s.head
	if s.loop && h[0].tok == token.DEFER {
		report(h[0], "defer-in-loop", SeverityWarning, "deferred in a loop: it runs when the function returns, not when the loop turns")
	}
	if begins(h, token.IDENT, token.COMMA, token.IDENT) && h[2].text == "_" && len(h) > 6 && (h[3].tok == token.ASSIGN || h[3].tok == token.DEFINE) &&
		begins(h[4:], token.IDENT, token.PERIOD, token.IDENT) && h[4].text == "context" &&
		slices.Contains([]string{"WithCancel", "WithTimeout", "WithDeadline", "WithCancelCause"}, h[6].text) {
		report(h[2], "lost-cancel", SeverityWarning, "the cancel function of "+h[6].text+" is thrown away, so the context leaks")
	}
	if to := dotted(h); to != "" && to != "_" && len(h)%2 == 1 && h[len(h)/2].tok == token.ASSIGN && to == dotted(h[len(h)/2+1:]) {
		report(h[0], "self-assignment", SeverityWarning, to+" is assigned to itself")
	}
}

// dotted returns the path of names at the beginning of a list, such as o.Item.
func dotted(list []lexeme) (name string) {
	for i, l := range list {
		switch {
		case i%2 == 0 && l.tok == token.IDENT, i%2 == 1 && l.tok == token.PERIOD:
			if name += l.text; l.tok == token.PERIOD {
				name += "."
			}
		case i%2 == 1:
			return name
		default:
			return ""
		}
	}
	return name
}

// unreachable finds a statement after a return of the same block.
func unreachable(s, next statement, report reporter) {
	if s.head[0].tok != token.RETURN || !s.whole {
		return
	}
	switch first := next.head[0]; first.tok {
	case token.RBRACE, token.CASE, token.DEFAULT, token.VAR, token.CONST, token.TYPE:
	case token.IDENT:
		if len(next.head) > 1 && next.head[1].tok == token.COLON || first.text == "panic" {
			return // a goto may lead to a label; a panic marks unreachable code on purpose
		}
		fallthrough
	default:
		report(first, "unreachable", SeverityWarning, "this can never run")
	}
}
