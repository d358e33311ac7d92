package tree

import (
	"cmp"
	"fmt"
	"strings"
)

// Dot writes the tree in the language of Graphviz. fold is as in [TextOptions].
func (t *Tree) Dot(fold int) string {
	fold = cmp.Or(fold, DefaultFold)
	d := dotWriter{fold: fold}
	d.line("digraph mesh {")
	d.line("  rankdir=LR;")
	d.line("  label=%s;", quote("corr "+plain(t.Corr)+": "+string(t.State)))
	d.line("  node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica\", fillcolor=white];")
	for _, root := range t.Roots {
		d.draw(root)
	}
	d.line("}")
	return d.b.String()
}

type dotWriter struct {
	b    strings.Builder
	fold int
	n    int
}

func (d *dotWriter) line(format string, args ...any) { fmt.Fprintf(&d.b, format+"\n", args...) }

// fills are the colours of the states.
var fills = map[State]string{Done: "palegreen", Failed: "lightcoral", Running: "lightblue", Retrying: "khaki", Waiting: "khaki", Sent: "white", HandedOff: "thistle", Withdrawn: "lightgrey", Unknown: "lightgrey"}

// draw writes a node and the nodes below it, and returns its name.
func (d *dotWriter) draw(n *Node) string {
	id := fmt.Sprintf("n%d", d.n)
	d.n++
	label := []string{n.name(), strings.TrimSpace(n.stateText() + " " + took(n.DurationMS))}
	if tokens, cost := n.spent(); tokens+cost != "" {
		if tokens != "" {
			tokens += " tokens "
		}
		label = append(label, strings.TrimSpace(tokens+cost))
	}
	for i := range n.Choices {
		label = append(label, n.Choices[i].words())
	}
	bold := ""
	if n.Critical {
		bold = ", penwidth=2"
	}
	d.line("  %s [label=%s, fillcolor=%s, tooltip=%s%s];", id, quote(label...), fills[n.State], quote(plain(n.ID)), bold)
	show, rest := n.folded(d.fold)
	if n.Depth >= maxLevels && len(n.Children) > 0 {
		show, rest = nil, n.Children
	}
	for _, c := range show {
		attributes := ""
		switch {
		case c.Edge == Handoff:
			attributes = ` [style=dashed, label="handed off"]`
		case c.Critical:
			attributes = " [penwidth=2]"
		}
		d.line("  %s -> %s%s;", id, d.draw(c), attributes)
	}
	if len(rest) > 0 {
		d.line("  %sm [label=%s, style=dashed];", id, quote(more(rest)))
		d.line("  %s -> %sm [style=dotted];", id, id)
	}
	return id
}

// quote writes lines as a quoted string, with \ and " escaped. That is enough for plain labels;
// records and HTML labels would need more.
func quote(lines ...string) string {
	for i, s := range lines {
		lines[i] = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s)
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}
