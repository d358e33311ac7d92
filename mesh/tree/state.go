package tree

import (
	"cmp"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
)

// State is how a task stands.
type State string

// The states of a task.
const (
	Sent      State = "sent"       // its caller sent it; no event says that it began
	Running   State = "running"    //
	Retrying  State = "retrying"   // it failed, and will be tried again
	Waiting   State = "waiting"    // for a person, or to be resumed
	Done      State = "done"       // it gave a result
	Failed    State = "failed"     // it gave an error, or its caller gave it up
	HandedOff State = "handed_off" // another task goes on with it, and answers
	Withdrawn State = "withdrawn"  // of a person: the answer is not waited for any more
	Unknown   State = "unknown"    // it began; no event says how it ended
)

// Ended reports whether nothing more is to come of a task.
func (s State) Ended() bool {
	return s == Done || s == Failed || s == HandedOff || s == Withdrawn || s == Unknown
}

// Count is how many tasks are in which state.
type Count struct {
	Total     int `json:"total"`
	Sent      int `json:"sent,omitempty"`
	Running   int `json:"running,omitempty"`
	Retrying  int `json:"retrying,omitempty"`
	Waiting   int `json:"waiting,omitempty"`
	Done      int `json:"done,omitempty"`
	Failed    int `json:"failed,omitempty"`
	HandedOff int `json:"handed_off,omitempty"`
	Withdrawn int `json:"withdrawn,omitempty"`
	Unknown   int `json:"unknown,omitempty"`
}

func (c *Count) add(s State) {
	c.Total++
	*map[State]*int{Sent: &c.Sent, Running: &c.Running, Retrying: &c.Retrying, Waiting: &c.Waiting, Done: &c.Done, Failed: &c.Failed,
		HandedOff: &c.HandedOff, Withdrawn: &c.Withdrawn, Unknown: &c.Unknown}[s]++
}

// Open is how many have not ended.
func (c Count) Open() int { return c.Sent + c.Running + c.Retrying + c.Waiting }

// stand says how a task stands, by its own word and its caller's.
//
// A caller's word that it failed goes before the task's own: it is what the rest
// went on with. Its word that there is a result is as good as the task's own,
// which may have been lost, or never said.
func (f *facts) stand(n *Node) {
	w := f.own
	switch {
	case f.caller.state == Failed:
		w = f.caller
		if f.own.state == Failed && f.own.code == w.code {
			w.message = f.own.message
		}
	case f.caller.state == Done && w.state != HandedOff:
		if w.state != Done {
			w = f.caller
		}
	case f.caller.state == Withdrawn && !w.state.Ended():
		w = f.caller
	case f.caller.state == Waiting && !w.state.Ended():
		w = f.caller
		n.WaitsFor, n.Until, n.Status = f.waitsFor, f.until, f.own.status
	case w.state == "":
		w = f.caller
	}
	w.state = cmp.Or(w.state, Unknown) // other tasks name it as the task above them; nothing else is known
	n.State, n.Code, n.Message, n.Then = w.state, w.code, w.message, f.caller.then
	n.Status = cmp.Or(n.Status, w.status)
	if n.State.Ended() {
		n.Ended, n.DurationMS = w.at, w.long()
		if other := f.caller; other.state == w.state && other.at.Before(n.Ended) {
			n.Ended = other.at // the task's own word can be heard after its answer
		}
		if ms := f.own.long(); f.own.state == w.state && ms > 0 {
			n.DurationMS = ms
		}
	}
	n.Usage, n.Total = f.own.usage, f.caller.usage
}

// long is how long it took from when it was heard of first. What is told leaves
// out how long a run waited, and what its owners before did.
func (w *word) long() float64 { return max(w.ms, between(w.first, w.at)) }

// settle sets the state of tasks whose end no event told, and the duration of all tasks.
func (t *Tree) settle(now time.Time) {
	for _, n := range t.Nodes { // those above come first
		above := t.index[n.Parent]
		if n.Parent != "" && above.State.Ended() && above.State != HandedOff && !n.State.Ended() && (n.State != Waiting || n.WaitsFor != "") {
			n.State = Unknown
			if n.person() && (above.State == Done || above.State == Failed) {
				n.State, n.Ended, n.WaitsFor, n.Until = Withdrawn, above.Ended, "", ""
			}
		}
		switch {
		case n.State == Unknown || n.DurationMS > 0:
		case n.State.Ended():
			n.DurationMS = between(n.first(), n.Ended)
		default:
			n.DurationMS = between(n.first(), now)
		}
	}
}

// person reports whether a person is asked.
func (n *Node) person() bool { return subject.EntityType(n.Entity) == subject.TypeHuman }

// sum counts, and says how the whole stands.
func (t *Tree) sum(now time.Time) {
	for _, n := range t.Nodes {
		t.Tasks.add(n.State)
		if first := n.first(); t.Began.IsZero() || !first.IsZero() && first.Before(t.Began) {
			t.Began = first
		}
	}
	for _, root := range t.Roots {
		t.State = worse(t.State, root.outcome())
		if root.Total != nil {
			total := *root.Total
			if t.Usage != nil {
				total = total.add(*t.Usage)
			}
			t.Usage = &total
		}
	}
	t.State = cmp.Or(t.State, Unknown)
	end := now
	if t.State.Ended() {
		end = time.Time{}
		for _, n := range t.Nodes {
			if n.Ended.After(end) {
				end = n.Ended
			}
		}
		t.Ended = end
	}
	t.DurationMS = between(t.Began, end)
	if len(t.Roots) == 1 && t.Roots[0].State.Ended() && t.Roots[0].State != HandedOff {
		t.DurationMS = max(t.DurationMS, t.Roots[0].DurationMS) // with what it waited in a queue
	}
}

// outcome is how a task stands, or the one that it was handed on to.
func (n *Node) outcome() State {
	if n.State == HandedOff {
		for _, c := range n.Children {
			if c.Edge == Handoff {
				return c.outcome()
			}
		}
	}
	return n.State
}

// worse is the state of two trees: what has not ended, then what failed.
func worse(a, b State) State {
	for _, s := range []State{Running, Retrying, Sent, Waiting, Failed, Unknown, Withdrawn, HandedOff} {
		if a == s || b == s {
			return s
		}
	}
	return b
}

func between(from, to time.Time) float64 {
	if from.IsZero() || !to.After(from) {
		return 0
	}
	return float64(to.Sub(from).Microseconds()) / 1000
}

// account divides what was used: each task's own, and the whole below it.
//
// Events and checkpoints tell what a task used itself, results what everything
// below it used together. Where one is missing it follows from the others, as
// far as it does.
func (t *Tree) account() {
	for i := len(t.Nodes) - 1; i >= 0; i-- { // those below come first
		n := t.Nodes[i]
		var below *Usage
		for _, c := range n.Children {
			if c.Total != nil {
				sum := *c.Total
				if below != nil {
					sum = sum.add(*below)
				}
				below = &sum
			}
		}
		told, zero := n.Total, Usage{}
		switch {
		case n.Usage == nil && told != nil:
			own := told.less(*orZero(below))
			if own != zero || below == nil {
				n.Usage = &own
			}
		case n.Usage == nil && below == nil:
			continue
		}
		total := orZero(n.Usage).add(*orZero(below))
		if told != nil {
			total = total.most(*told)
		}
		n.Total = &total
	}
}

func orZero(u *Usage) *Usage {
	if u == nil {
		return &Usage{}
	}
	return u
}

// say tells in words what is not known.
func (t *Tree) say(b *Builder) {
	if n := t.Tasks.Unknown; n > 0 {
		t.Unknown = append(t.Unknown, fmt.Sprintf("the end of %s was not reported", tasks(n)))
	}
	if b.dropped > 0 {
		t.Unknown = append(t.Unknown, fmt.Sprintf("there are more than %s: those beyond are left out", tasks(MaxTasks)))
	}
}

func tasks(n int) string { return plural(int64(n), "task") }

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return group(n) + " " + what + "s"
}
