package tree

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/intents"
)

// plain makes a peer's text safe for one line of a terminal: it replaces characters that are not
// printable, and truncates the text.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case r == '\n' || r == '\t':
			return ' '
		}
		return '\uFFFD'
	}, s)
	if r := []rune(s); len(r) > maxWord {
		s = string(r[:maxWord-1]) + "…"
	}
	return s
}

// maxWord bounds, in characters, the drawn part of a peer's text.
const maxWord = 120

// took formats a duration in a suitable unit.
func took(ms float64) string {
	switch d := time.Duration(ms * float64(time.Millisecond)); {
	case ms <= 0:
		return ""
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 1, 64) + "ms"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Second).String(), "m0s") + map[bool]string{true: "m"}[d.Round(time.Second)%time.Minute == 0]
	default:
		return strconv.Itoa(int(d.Hours()/24)) + "d"
	}
}

// clock formats a time to the second. Any other text is returned unchanged.
func clock(s string) string {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t.UTC().Format(time.DateTime + " MST")
	}
	return plain(s)
}

// group writes a number with commas: 12,345.
func group(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// dollars formats an amount to a hundredth of a cent, smaller amounts with more digits.
func dollars(u model.USD) string {
	switch {
	case u <= 0:
		return ""
	case u >= model.Dollar/100:
		return fmt.Sprintf("$%.4f", float64(u)/float64(model.Dollar))
	case u < 1000:
		return "<$0.000001"
	}
	return "$" + strings.TrimRight(fmt.Sprintf("%.6f", float64(u)/float64(model.Dollar)), "0")
}

// stateText describes a state, with its error code.
func (n *Node) stateText() string {
	words := strings.ReplaceAll(string(n.State), "_", " ")
	switch {
	case n.State == Waiting && n.WaitsFor != "" && (n.person() || n.WaitsFor != n.Entity): // an agent waits for those below it
		words += " for " + plain(n.WaitsFor)
	case n.State == Waiting && n.Status != "":
		words += " (" + strings.ReplaceAll(plain(n.Status), "_", " ") + ")"
	}
	if n.Code != "" {
		words += " " + plain(n.Code)
	}
	return words
}

// notes returns short notes about a task.
func (n *Node) notes() []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if n.Try > 1 {
		add("try %d", n.Try)
	}
	if n.Attempt > 1 {
		add("attempt %d", n.Attempt)
	}
	switch {
	case n.TakenOver == 1:
		add("taken over")
	case n.TakenOver > 1:
		add("taken over %d times", n.TakenOver)
	}
	switch n.Then {
	case intents.ThenSkip:
		add("went on without it")
	case intents.ThenRetry:
		add("tried again")
	case intents.ThenFallback:
		add("another one did it")
	}
	if n.Until != "" && n.State == Waiting {
		add("until %s", clock(n.Until))
	}
	if p := n.Position; p != nil && p.Current != "" && !n.State.Ended() {
		done := plural(int64(len(p.Completed)), "step")
		if n := len(p.Remaining); n > 0 { // only a pipeline records how many remain
			done = fmt.Sprintf("%d of %d steps", len(p.Completed), len(p.Completed)+n)
		}
		add("at %s, %s done", strings.ReplaceAll(plain(p.Current), "_", " "), done)
	}
	return out
}

// words describes a choice.
func (c *Choice) words() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	who := plain(c.Alias)
	if who == "" {
		who = plain(c.To)
	}
	by := plain(c.By)
	switch by {
	case intents.ByModel:
		by = "by its model"
	case intents.ByCondition:
		by = "by its condition"
	case intents.ByFallback:
		by = "as no condition held"
	case intents.ByDefault:
		by = "as documented"
	case "":
	default:
		by = "by " + by
	}
	switch c.What {
	case "voted":
		add("%s", strings.ReplaceAll(plain(c.Strategy), "_", " "))
		add("%s", c.tally())
		if c.Tied {
			add("tied")
		}
		if c.Winner != "" {
			add("→ %s", plain(c.Winner))
		}
	case "routed":
		add("routed to %s %s", who, by)
	case "merged":
		add("merged %s", by)
	case "handed_off":
		add("handed off to %s", who)
	case "escalated":
		add("escalated to %s", plain(c.To))
	default:
		add("%s %s", strings.ReplaceAll(plain(c.What), "_", " "), who)
	}
	if c.Detail != "" {
		add("(%s)", plain(c.Detail))
	}
	return strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
}

// tally returns the result of a vote, such as 3:2, or the best scores.
func (c *Choice) tally() string {
	var all []string
	for i, v := range c.Votes {
		if i == 8 {
			all = append(all, "…")
			break
		}
		all = append(all, strconv.Itoa(v.Count))
	}
	if len(all) > 0 {
		return strings.Join(all, ":")
	}
	for i, s := range c.Scores {
		if i == 5 {
			all = append(all, "…")
			break
		}
		all = append(all, fmt.Sprintf("%s %.4g", plain(s.Alias), s.Score))
	}
	return strings.Join(all, ", ")
}

// name returns the alias and the entity of a node.
func (n *Node) name() string {
	alias, entity := plain(n.Alias), plain(n.Entity)
	switch {
	case alias == "" || alias == entity:
		alias = ""
	case entity == "":
		return alias
	default:
		alias += "  "
	}
	if entity == "" {
		return "task " + plain(n.ID)
	}
	return alias + entity
}

// words formats the counts, the most important first: "985 done, 5 failed".
func (c Count) words() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{c.Done, "done"}, {c.HandedOff, "handed off"}, {c.Failed, "failed"}, {c.Running, "running"}, {c.Retrying, "retrying"}, {c.Waiting, "waiting"}, {c.Sent, "not begun"}, {c.Withdrawn, "withdrawn"}, {c.Unknown, "unknown"}} {
		if p.n > 0 {
			parts = append(parts, group(int64(p.n))+" "+p.what)
		}
	}
	return strings.Join(parts, ", ")
}
