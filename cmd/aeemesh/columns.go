package main

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// maxColumn is how wide a column of [columns] grows. What is wider shifts the
// rest of its own row, and no other.
const maxColumn = 48

// columns sets rows of which more come later: a cell is as wide as the widest
// that was seen in its column so far. The last cell of a row is as wide as it is.
type columns struct{ widths []int }

// see makes room for rows that are about to be printed, so that those that come
// together have the same columns.
func (c *columns) see(rows ...[]string) {
	for _, row := range rows {
		for i, cell := range row[:len(row)-1] {
			if i == len(c.widths) {
				c.widths = append(c.widths, 0)
			}
			if w := text.StringWidth(cell); w <= maxColumn {
				c.widths[i] = max(c.widths[i], w)
			}
		}
	}
}

// line is a row as it is printed.
func (c *columns) line(row []string) string {
	var b strings.Builder
	for i, cell := range row {
		if i < len(row)-1 {
			cell = text.Pad(cell, c.widths[i], ' ') + "  "
		}
		b.WriteString(cell)
	}
	return strings.TrimRight(b.String(), " ")
}
