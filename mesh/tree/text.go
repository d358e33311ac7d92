package tree

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// TextOptions configure how a tree is drawn.
type TextOptions struct {
	// Fold is how many siblings are drawn; if there are a few more than that, all are drawn,
	// otherwise the rest is only counted. 0: 12. Negative: all are drawn.
	Fold int
	// Paint colours words by the state that they describe, "" for secondary text. nil: no colours.
	Paint func(s State, words string) string
	// Width bounds a line, in columns; a wide character counts as two. 0: no bound.
	Width int
}

// span is a part of a line that has one colour.
type span struct {
	text    string
	painted bool
	state   State
}

func words(s string) span                 { return span{text: s} }
func faint(s string) span                 { return span{text: s, painted: true} }
func coloured(state State, s string) span { return span{s, true, state} }

// Defaults and bounds of what is drawn.
const (
	DefaultFold = 12
	foldSlack   = 3  // up to so many more are drawn instead of counted
	maxLevels   = 64 // deeper ones are only counted
)

// Text draws the tree: a line for the whole, a line for each task with its choices below it, and
// notes about unknown facts.
func (t *Tree) Text(opts TextOptions) string {
	if opts.Paint == nil {
		opts.Paint = func(_ State, s string) string { return s }
	}
	opts.Fold = cmp.Or(opts.Fold, DefaultFold)
	d := drawing{fold: opts.Fold}
	for _, root := range t.Roots {
		d.draw(root, "", "")
	}
	var b strings.Builder
	for _, part := range [][][]span{t.header(), d.lines(), t.footer()} {
		for _, line := range part {
			opts.write(&b, line)
		}
	}
	return b.String()
}

// write writes a line, cut to the width, without trailing blanks.
func (o *TextOptions) write(b *strings.Builder, line []span) {
	for len(line) > 0 && strings.TrimRight(line[len(line)-1].text, " ") == "" {
		line = line[:len(line)-1]
	}
	room := o.Width
	for i, s := range line {
		if i == len(line)-1 {
			s.text = strings.TrimRight(s.text, " ")
		}
		full := false
		if o.Width > 0 {
			s.text, full = cut(s.text, room-1)
			room -= columns(s.text)
		}
		if s.painted {
			s.text = o.Paint(s.state, s.text)
		}
		b.WriteString(s.text)
		if full {
			b.WriteString("…")
			break
		}
	}
	b.WriteByte('\n')
}

// cut returns the part of s that fits, and whether something was cut off.
func cut(s string, room int) (string, bool) {
	for i, r := range s {
		if room -= columns(string(r)); room < 0 {
			return s[:i], true
		}
	}
	return s, false
}

// columns returns how many columns s may take at most.
func columns(s string) int {
	n := utf8.RuneCountInString(s)
	for _, r := range s {
		if r >= 0x1100 { // this includes all wide characters, but not the branches of trees
			if r < 0x2000 || r > 0x25FF {
				n++
			}
		}
	}
	return n
}

// header returns the lines about the whole tree.
func (t *Tree) header() [][]span {
	long := ""
	if d := took(t.DurationMS); d != "" && t.State.Ended() {
		long = " in " + d
	} else if d != "" {
		long = " for " + d
	}
	parts := []string{long, tasks(t.Tasks.Total)}
	if t.Tasks.Total > 1 {
		parts[1] += " (" + t.Tasks.words() + ")"
	}
	if u := t.Usage; u != nil {
		if n := u.Tokens(); n > 0 {
			parts = append(parts, group(n)+" tokens")
		}
		if cost := dollars(u.CostUSD); cost != "" {
			parts = append(parts, cost)
		}
		if n := u.UnpricedCalls; n > 0 {
			parts = append(parts, plural(n, "model call")+" without a known price")
		}
	}
	state := strings.ReplaceAll(string(t.State), "_", " ")
	return [][]span{{words("corr " + plain(t.Corr) + ": "), coloured(t.State, state), words(strings.Join(parts, ", "))}, nil}
}

// footer returns the lines about the critical path, and about unknown facts.
func (t *Tree) footer() [][]span {
	var out [][]span
	if open := t.open(); len(open) > 0 {
		out = append(out, []span{words("still open: " + list(open, ", "))})
	} else if leg := t.leg(); len(leg) > 0 && t.Tasks.Total > 2 {
		out = append(out, []span{words("longest leg: " + list(leg, " → "))})
	}
	for _, s := range t.Unknown {
		out = append(out, []span{words("not known: " + s)})
	}
	if len(out) > 0 {
		out = append([][]span{nil}, out...)
	}
	return out
}

// leg returns the critical path below the roots, in order.
func (t *Tree) leg() []*Node {
	return slices.DeleteFunc(t.longest(), func(n *Node) bool { return n.Depth == 0 })
}

// open returns the tasks that have not ended, except those that only wait for a task below them.
func (t *Tree) open() (out []*Node) {
	for _, n := range t.Nodes {
		if !n.State.Ended() && n.Depth > 0 && !slices.ContainsFunc(n.Children, func(c *Node) bool { return !c.State.Ended() }) {
			out = append(out, n)
		}
	}
	return out
}

// list names the first and the last of some tasks, and how long they took.
func list(nodes []*Node, between string) string {
	var names []string
	for i, n := range nodes {
		if len(nodes) > 8 && i == 4 {
			names = append(names, "…")
		}
		if len(nodes) > 8 && i >= 4 && i < len(nodes)-3 {
			continue
		}
		name := plain(n.Alias)
		if name == "" {
			name = n.name()
		}
		if d := took(n.DurationMS); d != "" {
			name += " " + d
		}
		names = append(names, name)
	}
	return strings.Join(names, between)
}
