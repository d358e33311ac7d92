package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/format"
	"go/parser"
	"go/scanner"
	"go/token"
	"strings"

	"github.com/aeemesh/aeemesh/examples/code-reviewer/review"
)

func checkFormat(ctx context.Context, root, at string) (*review.Report, error) {
	files, skipped, err := review.ReadFiles(ctx, root, at, review.IsGo)
	if err != nil {
		return nil, err
	}
	var found []review.Finding
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// format.Source alone would accept a fragment as a file.
		_, err := parser.ParseFile(token.NewFileSet(), f.Name, f.Data, parser.SkipObjectResolution)
		if err != nil {
			found = append(found, syntaxErrors(f.Name, err)...)
			continue
		}
		formatted, err := format.Source(f.Data)
		if err != nil {
			found = append(found, syntaxErrors(f.Name, err)...)
			continue
		}
		for _, h := range changed(f.Data, formatted) {
			lines := fmt.Sprintf("line %d is", h.first)
			if h.last > h.first {
				lines = fmt.Sprintf("lines %d to %d are", h.first, h.last)
			}
			found = append(found, review.Finding{File: f.Name, Line: h.first, Column: 1, Rule: "gofmt", Severity: review.SeverityInfo, Message: lines + " not as gofmt writes it"})
		}
	}
	return review.NewReport(len(files), skipped, found), nil
}

// syntaxErrors lists up to three errors of a file, without the text found instead, because that may
// be a literal.
func syntaxErrors(file string, err error) (found []review.Finding) {
	var list scanner.ErrorList
	if !errors.As(err, &list) {
		return []review.Finding{{File: file, Line: 1, Column: 1, Rule: "syntax", Severity: review.SeverityError, Message: "the file is not Go"}}
	}
	for _, e := range list[:min(len(list), 3)] {
		message, _, _ := strings.Cut(e.Msg, ", found")
		if strings.ContainsAny(message, "\"`") {
			message = "the file is not Go"
		}
		found = append(found, review.Finding{File: file, Line: max(e.Pos.Line, 1), Column: max(e.Pos.Column, 1), Rule: "syntax", Severity: review.SeverityError, Message: message})
	}
	return found
}

// hunk is a run of lines, counted from 1, that differ.
type hunk struct{ first, last int }

// maxTable bounds the work of comparing two files line by line.
const maxTable = 4 << 20

// changed returns the lines of a that are not in b.
func changed(a, b []byte) (hunks []hunk) {
	if bytes.Equal(a, b) {
		return nil
	}
	x, y := bytes.SplitAfter(a, []byte("\n")), bytes.SplitAfter(b, []byte("\n"))
	start := 0
	for start < len(x) && start < len(y) && bytes.Equal(x[start], y[start]) {
		start++
	}
	end := 0
	for end < len(x)-start && end < len(y)-start && bytes.Equal(x[len(x)-1-end], y[len(y)-1-end]) {
		end++
	}
	last := len(x)
	if last > 1 && len(x[last-1]) == 0 {
		last-- // nothing follows the final newline
	}
	clip := func(n int) int { return max(1, min(n, last)) }
	x, y = x[start:len(x)-end], y[start:len(y)-end]
	if len(x)*len(y) > maxTable {
		return []hunk{{clip(start + 1), clip(start + len(x))}}
	}
	// common[i][j] is the length of the longest common part of x[i:] and y[j:].
	common := make([][]int32, len(x)+1)
	for i := range common {
		common[i] = make([]int32, len(y)+1)
	}
	for i := len(x) - 1; i >= 0; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if bytes.Equal(x[i], y[j]) {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(x) || j < len(y); {
		if i < len(x) && j < len(y) && bytes.Equal(x[i], y[j]) {
			i, j = i+1, j+1
			continue
		}
		first := i
		for (i < len(x) || j < len(y)) && !(i < len(x) && j < len(y) && bytes.Equal(x[i], y[j])) {
			if j == len(y) || i < len(x) && common[i+1][j] >= common[i][j+1] {
				i++
			} else {
				j++
			}
		}
		hunks = append(hunks, hunk{clip(start + first + 1), clip(start + max(i, first+1))})
	}
	return hunks
}
