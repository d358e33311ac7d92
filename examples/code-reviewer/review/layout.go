package review

import (
	"context"
	"go/token"
)

// CheckLayout reports syntax errors that are visible in tokens, and some of the changes that gofmt
// would make: blanks at the ends of lines, indentation by blanks, a comma without a blank after it,
// and blanks before a function's result.
func CheckLayout(ctx context.Context, root, at string) (*Report, error) {
	files, skipped, err := ReadFiles(ctx, root, at, IsGo)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		list, bad := lex(f)
		if found = append(found, bad...); len(bad) == 0 {
			found = append(found, layout(f, list)...)
		}
	}
	return NewReport(len(files), skipped, found), nil
}

// layout checks the text between tokens. It does not check comments and literals.
func layout(f Source, list []lexeme) (found []Finding) {
	report := func(l lexeme, message string) {
		found = append(found, Finding{f.Name, l.pos.Line, l.pos.Column, "layout", SeverityInfo, message})
	}
	blank := func(at int) bool { return at >= 0 && at < len(f.Data) && f.Data[at] == ' ' }
	header := false // in the first line of a function declaration
	for i, l := range list {
		at := l.pos.Offset
		first := i == 0 || list[i-1].pos.Line < l.pos.Line
		switch {
		case first && blank(at-1) && lineIsBlank(f.Data, at):
			report(l, "this line is indented with blanks; gofmt uses tabs")
		case l.tok == token.COMMA && i+1 < len(list) && list[i+1].pos.Line == l.pos.Line && list[i+1].pos.Offset == at+1:
			report(l, "gofmt has a blank behind a comma")
		case header && l.tok != token.LBRACE && blank(at-1) && blank(at-2) && i > 0 && list[i-1].tok == token.RPAREN:
			report(l, "gofmt has one blank here")
		case l.tok == token.SEMICOLON && l.text == "\n" && blank(at-1):
			report(l, "blanks at the end of the line")
		}
		switch {
		case l.tok == token.FUNC && l.pos.Column == 1:
			header = true
		case l.tok == token.LBRACE || l.tok == token.SEMICOLON:
			header = false
		}
	}
	return found
}

// lineIsBlank reports whether there are only blanks and tabs between the beginning of a line and an
// offset in it.
func lineIsBlank(data []byte, at int) bool {
	for at--; at >= 0 && data[at] != '\n'; at-- {
		if data[at] != ' ' && data[at] != '\t' {
			return false
		}
	}
	return true
}
