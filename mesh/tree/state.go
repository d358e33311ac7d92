package tree

import (
	"cmp"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
)

// State is the state of a task.
type State string

// The states of a task.
const (
	Sent      State = "sent"       // its caller sent it; no event says that it began
	Running   State = "running"    //
	Retrying  State = "retrying"   // it failed, and will be tried again
	Waiting   State = "waiting"    // for a person, or to be resumed
	Done      State = "done"       // it gave a result
	Failed    State = "failed"     // it ended with an error, or its caller stopped waiting
	HandedOff State = "handed_off" // another task continues and answers it
	Withdrawn State = "withdrawn"  // a person's task whose answer is no longer needed
	Unknown   State = "unknown"    // it began; no event says how it ended
)

// Ended reports whether the state is final.
func (s State) Ended() bool {
	return s == Done || s == Failed || s == HandedOff || s == Withdrawn || s == Unknown
}

// Count has the number of tasks in each state.
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

// Open returns how many tasks have not ended.
func (c Count) Open() int { return c.Sent + c.Running + c.Retrying + c.Waiting }

// stand sets the state of a task, from its own statements and its caller's.
//
// The caller's statement that the task failed takes precedence over the task's own, because the
// tree went on with that. The caller's statement that there is a result counts like the task's
// own, whose events may be lost or never published.
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
	n.State, n.Code, n.Message, n.Then = w.state, w.code, w.message, f.caller.next
	n.Status = cmp.Or(n.Status, w.status)
	if n.State.Ended() {
		n.Ended, n.DurationMS = w.at, w.long()
		if other := f.caller; other.state == w.state && other.at.Before(n.Ended) {
			n.Ended = other.at // the task's own event may arrive after its answer
		}
		if ms := f.own.long(); f.own.state == w.state && ms > 0 {
			n.DurationMS = ms
		}
	}
	n.Usage, n.Total = f.own.usage, f.caller.usage
}

// long returns the duration since the first event. The reported duration leaves out how long a run
// waited, and the work of earlier owners.
func (w *word) long() float64 { return max(w.ms, between(w.first, w.at)) }

// settle sets the state of tasks whose end is in no event, and the duration of all tasks.
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

// person reports whether the task is for a person.
func (n *Node) person() bool { return subject.EntityType(n.Entity) == subject.TypeHuman }

// sum counts the tasks, and sets the state of the whole tree.
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
		t.DurationMS = max(t.DurationMS, t.Roots[0].DurationMS) // including the time in a queue
	}
}

// outcome returns the state of a task, or of the task that it was delegated to.
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

// worse returns the state of two trees together: one that has not ended comes first, then one that
// failed.
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

// account computes the usage of each task: its own, and the total with the tasks below it.
//
// Events and checkpoints have a task's own usage, results the total with everything below. If one
// is missing, it is computed from the others where possible.
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

// say describes what is not known.
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
