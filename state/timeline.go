package state

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// A Moment describes one checkpoint of a run, for people.
type Moment struct {
	Revision  uint64         `json:"revision"`
	At        time.Time      `json:"at"` // when it was captured, or if that is unknown when it was stored
	Epoch     uint64         `json:"epoch"`
	Owner     string         `json:"owner,omitempty"`
	Status    aaif.RunStatus `json:"status"`
	Iteration int64          `json:"iteration"`
	Step      Step           `json:"step"`
	// Events describe what happened since the previous checkpoint, each in a few words.
	// For the first checkpoint they describe its state.
	Events []string `json:"events,omitempty"`
	// Problem says why the checkpoint could not be read; then only its header is shown. A
	// common reason is a sealed document without its key.
	Problem string `json:"problem,omitempty"`
}

// Timeline describes a run by its stored checkpoints, oldest first, see [Store.History].
// Of the conversation it contains only the beginnings of messages.
func Timeline(k Codec, history []Record) []Moment {
	var (
		moments []Moment
		before  *Checkpoint
	)
	for _, r := range history {
		c, err := k.DecodeRecord(r)
		if err != nil {
			moments = append(moments, headerMoment(r, err))
			before = nil
			continue
		}
		m := Moment{
			Revision: r.Revision, At: c.At(), Epoch: c.Mesh.Epoch, Owner: c.Mesh.Owner,
			Status: c.Doc.Status, Iteration: c.Doc.Iteration.Int64(), Step: c.Mesh.Step,
		}
		if m.At.IsZero() {
			m.At = r.Time
		}
		m.Events = events(before, c)
		moments = append(moments, m)
		before = c
	}
	return moments
}

func headerMoment(r Record, err error) Moment {
	m := Moment{Revision: r.Revision, At: r.Time, Problem: err.Error()}
	if h, err := r.Header(); err == nil {
		m.Epoch, m.Owner, m.Status, m.Iteration, m.Step.Kind = h.Epoch, h.Owner, h.Status, h.Iteration, h.Step
		if !h.At.IsZero() {
			m.At = h.At
		}
	}
	return m
}

// AskedBy precedes the requester and the reason in the detail of a step that was
// requested.
const AskedBy = "asked by "

// events describes what happened between two checkpoints. before is nil for the first
// one.
func events(before, c *Checkpoint) []string {
	first := before == nil
	if first {
		before = &Checkpoint{}
	}
	var all []string
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }

	a, b := &before.Mesh, &c.Mesh
	switch {
	case first && b.Epoch > 1:
		if b.Owner != "" {
			say("owned by %s, the %s owner", b.Owner, ordinal(b.Epoch))
		}
	case b.Owner == "" && c.Terminal(): // it waits for no worker
		if first && b.Task == nil {
			say("ended in one step (epoch %d)", b.Epoch)
		}
	case b.Epoch != a.Epoch && b.Owner == "" && a.Owner != "" && before.Doc.Status == c.Doc.Status:
		say("taken from %s, which died (epoch %d)", a.Owner, b.Epoch)
	case b.Epoch != a.Epoch && b.Owner == "":
		say("waits for a worker (epoch %d)", b.Epoch)
	case b.Epoch != a.Epoch && a.Owner == "" || b.Epoch != a.Epoch && a.Owner == b.Owner:
		say("claimed by %s (epoch %d)", b.Owner, b.Epoch)
	case b.Epoch != a.Epoch:
		say("taken over by %s from %s (epoch %d)", b.Owner, a.Owner, b.Epoch)
	}
	if !first && b.Owner == "" && b.Work != 0 && a.Work == 0 {
		say("queued")
	}
	if p := b.Parent; p != nil && a.Parent == nil {
		say("%s of run %s, revision %d", p.Kind, p.Run, p.Revision)
	}
	if !first && before.Doc.Status != c.Doc.Status {
		say("%s, was %s", words(c.Doc.Status), words(before.Doc.Status))
	}
	if b.Attempt > a.Attempt {
		say("retry %d", b.Attempt)
	}
	if b.Pending != "" && b.Pending != a.Pending {
		say("%s is asked for", b.Pending)
	}
	if m := b.Migration; m != nil && (a.Migration == nil || a.Migration.ID != m.ID || a.Migration.Phase != m.Phase) {
		say("migration %s", strings.TrimSpace(string(m.Phase)+" "+m.Detail))
	}
	if d := b.Step.Detail; strings.Contains(d, AskedBy) && d != a.Step.Detail {
		say("%s", clip.Text(oneLine(d), 160))
	}
	steered(a, b, say)
	messages(before, c, say)
	effects(a, b, say)
	calls(a, b, say)
	if e := c.Doc.Error; e != nil && (before.Doc.Error == nil || *before.Doc.Error != *e) {
		say("error %s", strings.TrimSpace(e.Code+" "+clip.Text(oneLine(e.Message), 120)))
	}
	if r := c.Doc.ApprovalRequest; r != nil && before.Doc.ApprovalRequest == nil {
		say("waits for a person: %s", clip.Text(oneLine(r.TriggerDescription), 120))
	}
	if in, out := b.Usage.InputTokens-a.Usage.InputTokens, b.Usage.OutputTokens-a.Usage.OutputTokens; in > 0 || out > 0 {
		say("%d tokens in, %d out", in, out)
	}
	if cost := b.Usage.CostNanoUSD - a.Usage.CostNanoUSD; cost > 0 {
		say("$%s", model.USD(cost))
	}
	if h := b.Handed; h != nil && a.Handed == nil {
		say("delegated to %s%s, as its task %s", h.To, because(h.Reason), h.TaskID)
	}
	if b.Dead != "" && a.Dead == "" {
		say("dead letter: %s", clip.Text(oneLine(b.Dead), 120))
	}
	if len(b.Reply) > 0 && len(a.Reply) == 0 {
		say("the reply is committed")
	}
	return all
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + clip.Text(oneLine(reason), 80) + ")"
}

func steered(a, b *Mesh, say func(string, ...any)) {
	known := map[string]bool{}
	for _, s := range a.Steering {
		known[s.ID] = true
	}
	for _, s := range b.Steering {
		if !known[s.ID] {
			say("%s puts in: %s", s.From, clip.Text(oneLine(s.Text), 80))
		}
	}
}

// calls describes which tasks for other agents began and ended. If there are many it
// counts them.
func calls(a, b *Mesh, say func(string, ...any)) {
	tell := func(what, many string, from, to []Call) {
		known := map[string]bool{}
		for _, c := range from {
			known[c.ID] = true
		}
		var news []Call
		for _, c := range to {
			if !known[c.ID] {
				news = append(news, c)
			}
		}
		const most = 4
		for i, c := range news {
			if i == most {
				say("%d calls more %s", len(news)-most, many)
				return
			}
			say("call %s of %s %s: task %s", clip.Text(oneLine(c.Key), 80), c.To, what, c.ID)
		}
	}
	tell("begins", "begin", a.Calls, b.Calls)
	tell("is over", "are over", b.Calls, a.Calls)
}

// messages describes the new messages.
func messages(before, c *Checkpoint, say func(string, ...any)) {
	had, has := before.Messages(), c.Messages()
	same := 0
	for same < len(had) && same < len(has) && had[same].Role == has[same].Role && had[same].Content == has[same].Content && had[same].ToolCallID == has[same].ToolCallID {
		same++
	}
	if gone := len(had) - same; gone > 0 {
		say("%d messages of the conversation are replaced", gone)
	}
	for _, m := range has[same:] {
		who := string(m.Role)
		if m.Role == model.RoleTool && m.ToolName != "" {
			who = "tool " + m.ToolName
		}
		if m.IsError {
			who += " failed"
		}
		text := clip.Text(oneLine(m.Content), 80)
		var calls []string
		for _, call := range m.ToolCalls {
			calls = append(calls, call.Name)
		}
		switch {
		case len(calls) > 0 && text == "":
			say("%s calls %s", who, strings.Join(calls, ", "))
		case len(calls) > 0:
			say("%s: %s, and calls %s", who, text, strings.Join(calls, ", "))
		default:
			say("%s: %s", who, text)
		}
	}
}

// effects describes the changes of tool calls.
func effects(a, b *Mesh, say func(string, ...any)) {
	was := map[string]Effect{}
	for _, e := range a.Effects {
		was[e.Key] = e
	}
	for _, e := range b.Effects {
		old, known := was[e.Key]
		if known && old.Status == e.Status && old.Tries == e.Tries {
			continue
		}
		s := fmt.Sprintf("call %s of %s: %s", e.ID, e.Tool, strings.ReplaceAll(string(e.Status), "_", " "))
		if e.Status == EffectUnknown {
			s += " whether it was done"
		}
		if e.Tries > 1 {
			s += fmt.Sprintf(" (begun %d times)", e.Tries)
		}
		if e.SettledBy != "" && old.SettledBy != e.SettledBy {
			s += ", says " + e.SettledBy
		}
		say("%s", s)
	}
}

func words(s aaif.RunStatus) string { return strings.ReplaceAll(string(s), "_", " ") }

func ordinal(n uint64) string {
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			return fmt.Sprint(n, "st")
		case 2:
			return fmt.Sprint(n, "nd")
		case 3:
			return fmt.Sprint(n, "rd")
		}
	}
	return fmt.Sprint(n, "th")
}

// oneLine removes line breaks and unprintable characters from a text, so that a hostile
// conversation cannot control the terminal.
func oneLine(s string) string {
	const most = 1 << 10 // more is not shown anyway
	return strings.Join(strings.FieldsFunc(clip.Text(s, most), func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }), " ")
}
