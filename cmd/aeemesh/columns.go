package main

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// maxColumn is the maximum width of a column of [columns]. A wider cell shifts
// the rest of its own row only.
const maxColumn = 48

// columns formats rows that are printed one after the other: a cell is as wide
// as the widest cell seen in its column so far. The last cell of a row is not
// padded.
type columns struct{ widths []int }

// see widens the columns for rows that are about to be printed, so that rows
// printed together are aligned.
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

// line formats a row.
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
