package tree

import (
	"fmt"
	"strings"
)

// row is one line of the drawing: the branch and the name, and then columns.
type row struct {
	branch string
	name   string
	node   *Node
	note   string // replaces the columns
}

// drawing collects the rows.
type drawing struct {
	fold int
	rows []row
}

func (d *drawing) draw(n *Node, branch, below string) {
	name := n.name()
	if n.Edge == Handoff {
		name = "⇒ " + name
	}
	d.rows = append(d.rows, row{branch: branch, name: name, node: n})
	show, rest := n.folded(d.fold)
	if n.Depth >= maxLevels && len(n.Children) > 0 {
		show, rest = nil, n.Children
	}
	bar := "   "
	if len(n.Children) > 0 {
		bar = "│  "
	}
	for i := range n.Choices {
		d.rows = append(d.rows, row{branch: below + bar, note: n.Choices[i].words()})
	}
	for i, c := range show {
		if i == len(show)-1 && len(rest) == 0 {
			d.draw(c, below+"└─ ", below+"   ")
		} else {
			d.draw(c, below+"├─ ", below+"│  ")
		}
	}
	if len(rest) > 0 {
		d.rows = append(d.rows, row{branch: below + "└─ ", note: more(rest)})
	}
}

// folded divides the nodes below a node into those that are drawn and the rest.
func (n *Node) folded(fold int) (show, rest []*Node) {
	if fold < 0 || len(n.Children) <= fold+foldSlack {
		return n.Children, nil
	}
	return n.Children[:fold], n.Children[fold:]
}

// more describes the tasks that are not drawn, with those below them.
func more(rest []*Node) string {
	var c Count
	deeper := 0
	for _, n := range rest {
		c.add(n.State)
		deeper += n.below()
	}
	s := fmt.Sprintf("… %s more: %s", group(int64(c.Total)), c.words())
	if deeper > 0 {
		s += fmt.Sprintf("; %s below them", tasks(deeper))
	}
	return s
}

// below counts the tasks below a node.
func (n *Node) below() int {
	sum := 0
	for _, c := range n.Children {
		sum += 1 + c.below()
	}
	return sum
}

// columnNames are the headings of the columns. Columns of numbers are right-aligned.
var columnNames = []string{"TASK", "LANE", "STATE", "TIME", "TOKENS", "COST"}

const firstNumber = 3

// lines formats the rows in columns, and leaves out empty columns.
func (d *drawing) lines() [][]span {
	cells := make([][]string, len(d.rows))
	widths := make([]int, len(columnNames))
	for i, r := range d.rows {
		if n := r.node; n != nil {
			tokens, cost := n.spent()
			cells[i] = []string{r.branch + r.name, n.Lane, n.stateText(), took(n.DurationMS), tokens, cost}
			for j, c := range cells[i] {
				widths[j] = max(widths[j], columns(c))
			}
		}
	}
	widths[0] = min(widths[0], maxName)
	for j, w := range widths {
		if w > 0 {
			widths[j] = max(w, columns(columnNames[j]))
		}
	}
	out := make([][]span, 0, len(d.rows)+1)
	var line []span
	for j, name := range columnNames {
		if widths[j] > 0 {
			line = append(line, faint(pad(name, widths[j], j >= firstNumber)))
		}
	}
	out = append(out, line)
	for i, r := range d.rows {
		if r.node == nil {
			out = append(out, []span{words(r.branch), faint(r.note)})
			continue
		}
		line := []span{words(pad(cells[i][0], widths[0], false))}
		for j, c := range cells[i][1:] {
			switch w := widths[j+1]; {
			case w == 0:
			case j+1 == 2:
				line = append(line, coloured(r.node.State, pad(c, w, false)))
			default:
				line = append(line, faint(pad(c, w, j+1 >= firstNumber)))
			}
		}
		if notes := r.node.notes(); len(notes) > 0 {
			line = append(line, faint(strings.Join(notes, ", ")))
		}
		out = append(out, line)
	}
	return out
}

// pad makes a cell as wide as its column, and the gap after it.
func pad(s string, width int, right bool) string {
	blanks := strings.Repeat(" ", max(0, width-columns(s)))
	if right {
		return blanks + s + "  "
	}
	return s + blanks + "  "
}

// maxName bounds the width to which names are padded, in columns.
const maxName = 60

// spent returns the columns with a task's usage: its own, and in brackets the total with all tasks
// below it.
func (n *Node) spent() (tokens, cost string) {
	if n.Total == nil {
		return "", ""
	}
	own := orZero(n.Usage)
	if t := own.Tokens(); t > 0 || n.Total.Tokens() > 0 {
		tokens = group(t)
	}
	cost = dollars(own.CostUSD)
	if len(n.Children) == 0 || *n.Total == *own {
		return tokens, cost
	}
	if t := n.Total.Tokens(); t != own.Tokens() {
		tokens = strings.TrimSpace(strings.TrimPrefix(tokens, "0") + " (" + group(t) + ")")
	}
	if n.Total.CostUSD != own.CostUSD {
		cost = strings.TrimSpace(fmt.Sprintf("%s (%s)", cost, dollars(n.Total.CostUSD)))
	}
	return tokens, cost
}
