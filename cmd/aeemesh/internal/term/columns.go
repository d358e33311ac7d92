package term

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// maxColumn is the maximum width of a column of [Columns]. A wider cell shifts
// the rest of its own row only.
const maxColumn = 48

// Columns formats rows that are printed one after the other: a cell is as wide
// as the widest cell seen in its column so far. The last cell of a row is not
// padded.
type Columns struct{ Widths []int }

// See widens the columns for rows that are about to be printed, so that rows
// printed together are aligned.
func (c *Columns) See(rows ...[]string) {
	for _, row := range rows {
		for i, cell := range row[:len(row)-1] {
			if i == len(c.Widths) {
				c.Widths = append(c.Widths, 0)
			}
			if w := text.StringWidth(cell); w <= maxColumn {
				c.Widths[i] = max(c.Widths[i], w)
			}
		}
	}
}

// Line formats a row.
func (c *Columns) Line(row []string) string {
	var b strings.Builder
	for i, cell := range row {
		if i < len(row)-1 {
			cell = text.Pad(cell, c.Widths[i], ' ') + "  "
		}
		b.WriteString(cell)
	}
	return strings.TrimRight(b.String(), " ")
}
