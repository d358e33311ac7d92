package tree

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
)

// MaxTasks bounds the tasks of one tree.
const MaxTasks = 50_000

// maxChoices bounds the events about choices that are kept of one task.
const maxChoices = 100

// A Builder collects the facts about the tasks of one corr.
type Builder struct {
	corr    string
	facts   map[string]*facts
	order   []*facts
	steps   map[string]*facts // the latest task of each step, by task and step
	waiting map[string]*facts // the person who has a part, by task and alias
	dropped int
}

// New makes a builder for the tasks of a corr.
func New(corr string) *Builder {
	return &Builder{corr: corr, facts: map[string]*facts{}, steps: map[string]*facts{}, waiting: map[string]*facts{}}
}

// Len returns how many tasks are known.
func (b *Builder) Len() int { return len(b.order) }

// facts are the known facts about one task.
type facts struct {
	id string

	entity, parent     string
	ownEntity, ownLink bool // the task's own events or record said so
	handoff            bool // the task was delegated by parent

	alias, step     string
	slot            *int
	try             int
	durable         bool
	intent, sender  string
	run, instance   string
	epoch           uint64
	attempt         int
	takenOver       int
	pattern         string // the team's pattern
	position        *Position
	choices         []Choice
	waitsFor, until string
	handedTo        string

	own    word // by its own events or its record
	caller word // by its caller's events
}

// word is the state of a task according to one side.
type word struct {
	state   State
	status  string // a status that it waits in
	first   time.Time
	at      time.Time // of state
	ms      float64   // how long it took; 0: not told
	code    string
	message string
	next    string
	usage   *Usage
}

// task returns the facts about a task, nil if there are too many tasks.
func (b *Builder) task(id string) *facts {
	if f := b.facts[id]; f != nil {
		return f
	}
	if len(b.order) >= MaxTasks {
		b.dropped++
		return nil
	}
	f := &facts{id: id}
	b.facts[id] = f
	b.order = append(b.order, f)
	return f
}

// is records a new state of a task.
func (w *word) is(s State, at time.Time, ms float64, problem *envelope.Error, usage json.RawMessage) {
	if w.first.IsZero() || at.Before(w.first) {
		w.first = at
	}
	w.state, w.at, w.ms, w.status, w.next, w.code, w.message = s, at, max(0, ms), "", "", "", ""
	if problem != nil {
		w.code, w.message = string(problem.Code), problem.Message
	}
	if u := readUsage(usage); u != nil {
		w.usage = u
	}
}

// saidBy records that an entity claims to work on the task. It returns false if another
// entity has claimed the task before.
func (f *facts) saidBy(entity string) bool {
	if f.ownEntity && f.entity != entity {
		return false
	}
	f.entity, f.ownEntity = entity, true
	return true
}

// under sets the parent. The task's own statement takes precedence over its caller's.
func (f *facts) under(parent string, own bool) {
	if parent == "" || parent == f.id || f.ownLink && !own {
		return
	}
	f.parent, f.ownLink = parent, own
}

// set replaces a value, unless the new one is empty.
func set(to *string, s string) {
	if s != "" {
		*to = s
	}
}

// Step takes an event on bus.mesh.run, which entity has published, and reports whether it is of
// use.
func (b *Builder) Step(at time.Time, entity, intent string, s intents.StepEvent) bool {
	if s.Task == "" || !intents.RunEvent(intent) {
		return false
	}
	above := b.task(s.Task)
	if above == nil || !above.saidBy(entity) {
		return false
	}
	set(&above.run, s.Run)
	above.durable = above.durable || s.Run != ""
	set(&above.instance, s.Instance)
	set(&above.pattern, s.Pattern)
	if above.own.state == "" { // the event of its own begin is missing
		above.own.is(Running, at, 0, nil, nil)
	}
	switch intent {
	case intents.RunStepStarted, intents.RunStepFinished, intents.RunStepFailed, intents.RunWaiting, intents.RunEscalated, intents.RunWithdrawn:
		return b.child(above, at, intent, s)
	case intents.RunHandedOff:
		above.handedTo = s.To
		if f := b.childOf(above, s); f != nil {
			f.handoff = true
			f.sent(at)
		}
	}
	if intent != intents.RunHandedOff || s.Detail != "" {
		above.choose(at, intent, s)
	}
	return true
}

// childOf returns the task of a step. A step without a task gets an id of its own.
func (b *Builder) childOf(above *facts, s intents.StepEvent) *facts {
	name := cmp.Or(s.Step, s.Alias, s.To)
	key := above.id + "/" + name
	var f *facts
	switch {
	case s.Child == above.id:
		return nil
	case s.Child != "":
		f = b.task(s.Child)
		b.removeUnserved(b.steps[key], f, s)
	case b.steps[key] != nil:
		f = b.steps[key]
	case name == "":
		return nil
	default:
		f = b.task(key)
	}
	if f == nil {
		return nil
	}
	b.steps[key] = f
	f.under(above.id, false)
	if !f.ownEntity {
		set(&f.entity, s.To)
	}
	set(&f.alias, s.Alias)
	set(&f.step, s.Step)
	if s.Slot != nil {
		f.slot = s.Slot
	}
	f.try = max(f.try, s.Try)
	f.durable = f.durable || s.Durable
	return f
}

// removeUnserved removes before, the live task of a step that found no worker: the same try was
// then sent over the durable lane under another id.
func (b *Builder) removeUnserved(before, f *facts, s intents.StepEvent) {
	if f == nil || before == nil || before == f || before.try != s.Try || before.durable || !s.Durable || before.own.state != "" || before.caller.state != Sent {
		return
	}
	delete(b.facts, before.id)
	b.order = slices.DeleteFunc(b.order, func(f *facts) bool { return f == before })
}

// sent records that the caller sent the task.
func (f *facts) sent(at time.Time) {
	if f.caller.state == "" {
		f.caller.is(Sent, at, 0, nil, nil)
	}
}

func (b *Builder) child(above *facts, at time.Time, intent string, s intents.StepEvent) bool {
	f := b.childOf(above, s)
	if f == nil {
		return false
	}
	switch intent {
	case intents.RunStepStarted:
		f.sent(at)
	case intents.RunStepFinished:
		f.caller.is(Done, at, s.DurationMS, nil, s.Usage)
	case intents.RunStepFailed:
		f.caller.is(Failed, at, s.DurationMS, s.Error, s.Usage)
		f.caller.next = s.Then
	case intents.RunWaiting:
		f.sent(at)
		if f.caller.state == Sent {
			f.caller.state, f.waitsFor, f.until = Waiting, s.To, s.Until
			b.waiting[above.id+"/"+f.alias] = f
		}
	case intents.RunWithdrawn:
		f.sent(at)
		f.giveUp(Withdrawn, at, nil)
		set(&f.caller.message, s.Detail)
	case intents.RunEscalated:
		if late := b.waiting[above.id+"/"+f.alias]; late != nil && late != f && late.caller.state == Waiting {
			late.caller.is(Failed, at, 0, envelope.Errorf(envelope.CodeTimeout, "%s", s.Detail), nil)
		}
		f.sent(at)
		above.choose(at, intent, s)
	}
	return true
}

// giveUp records that the caller no longer waits for the task, unless its end is already known.
func (f *facts) giveUp(s State, at time.Time, why *envelope.Error) {
	if f.caller.state == Sent || f.caller.state == Waiting {
		f.caller.is(s, at, 0, why, nil)
	}
}

// choose records a choice that was made during the work on a task.
func (f *facts) choose(at time.Time, intent string, s intents.StepEvent) {
	if len(f.choices) >= maxChoices {
		return
	}
	_, what, _ := cutLast(intent)
	f.choices = append(f.choices, Choice{What: what, At: at, Alias: s.Alias, To: s.To, By: s.By, Strategy: s.Strategy, Winner: s.Winner, Votes: s.Votes, Scores: s.Scores, Tied: s.Tied, Detail: s.Detail})
}
