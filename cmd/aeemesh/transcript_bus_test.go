//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// busLog is what the bus told of tasks and their steps, in the order in which it
// was heard.
type busLog struct {
	mu     sync.Mutex
	events []busEvent
	lines  []string
	odd    []string // events that do not fit their schemas
}

// busEvent is an event of bus.mesh.task or bus.mesh.run.
type busEvent struct {
	intent, from, corr string
	intents.StepEvent
	Parent  string `json:"parent"`
	Attempt int    `json:"attempt"`
}

func (l *busLog) note(msg *nats.Msg) {
	e, err := envelope.Parse(msg.Data)
	if err != nil {
		return
	}
	event := busEvent{intent: e.Intent, from: e.From, corr: e.Corr}
	if json.Unmarshal(e.Payload, &event) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event)
	l.lines = append(l.lines, e.From+" "+e.Intent+" "+string(e.Payload))
	if s := eventSchema(strings.TrimPrefix(msg.Subject, "bus.")); s == nil || s.Validate(e.Payload) != nil {
		l.odd = append(l.odd, "does not fit the schema of "+msg.Subject+": "+e.Intent+" "+string(e.Payload)+"\n")
	}
}

// eventSchema is the published schema of the events of a topic, nil if there is none.
func eventSchema(topic string) *schema.Schema {
	raw, err := os.ReadFile("../../intents/" + topic + ".event.schema.json")
	if err != nil {
		return nil
	}
	s, err := schema.Compile(raw)
	if err != nil {
		return nil
	}
	return s
}

// raw is what was heard, as it was heard.
func (l *busLog) raw() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// tree draws a task and all that came of it: each task with how it stands, its
// steps with what became of them, and below each step the task that its member
// was sent. Steps of a swarm are in the order of its members, others in the
// order in which they began; what was told twice, as after a crash, is there
// once.
func (l *busLog) tree(task *envelope.Envelope) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	b.WriteString(strings.Join(l.odd, ""))
	l.task(&b, task.ID, task.To, "", make(map[string]bool))
	return b.String()
}

// stepLine is what was told of one step.
type stepLine struct {
	name, text string
	slot       int
	phases     []string
	children   []string
}

func (l *busLog) task(b *strings.Builder, id, entity, indent string, drawn map[string]bool) {
	if drawn[id] {
		return
	}
	drawn[id] = true
	status := "no event"
	swarm := false
	var steps []*stepLine
	step := func(name, text string, slot int) *stepLine {
		i := slices.IndexFunc(steps, func(s *stepLine) bool { return s.name == name })
		if i < 0 {
			steps = append(steps, &stepLine{name: name, text: text, slot: slot})
			i = len(steps) - 1
		}
		return steps[i]
	}
	var children []string
	entities := make(map[string]string)
	for i := range l.events {
		e := &l.events[i]
		word := e.intent[strings.LastIndexByte(e.intent, '.')+1:]
		if strings.HasPrefix(e.intent, "mesh.task.") {
			if e.Task == id && !(word == "started" && status == "finished") {
				if status, entity = word, e.from; e.Error != nil {
					status += " " + string(e.Error.Code)
				}
			}
			if e.Parent == id && !slices.Contains(children, e.Task) {
				children, entities[e.Task] = append(children, e.Task), e.from
			}
			continue
		}
		if e.Task != id {
			continue
		}
		swarm = swarm || e.Pattern == "swarm"
		slot := 1 << 30 // behind the members
		if e.Slot != nil {
			slot = *e.Slot
		}
		switch e.intent {
		case intents.RunStepStarted, intents.RunStepFinished, intents.RunStepFailed:
			text := fmt.Sprintf("%s → %s", e.Alias, e.To)
			if e.Durable {
				text += ", durable"
			}
			s := step("step "+e.Step, text, slot)
			phase := strings.TrimPrefix(word, "step_")
			if e.Error != nil {
				phase += " " + string(e.Error.Code)
			}
			if e.Then != "" {
				phase += ", " + e.Then
			}
			if !slices.Contains(s.phases, phase) {
				s.phases = append(s.phases, phase)
			}
			if e.Child != "" && !slices.Contains(s.children, e.Child) {
				s.children = append(s.children, e.Child)
			}
		default:
			s := step(word+" "+e.Step+e.Alias, told(word, e), slot)
			if e.Child != "" && !slices.Contains(s.children, e.Child) {
				s.children = append(s.children, e.Child)
			}
		}
	}
	if swarm {
		slices.SortStableFunc(steps, func(x, y *stepLine) int { return x.slot - y.slot })
	}
	fmt.Fprintf(b, "%s%s: %s\n", indent, entity, status)
	for _, s := range steps {
		fmt.Fprintf(b, "%s  %s", indent, s.text)
		if len(s.phases) > 0 {
			fmt.Fprintf(b, ": %s", strings.Join(s.phases, ", "))
		}
		b.WriteByte('\n')
		for _, child := range s.children {
			if entities[child] != "" {
				l.task(b, child, entities[child], indent+"    ", drawn)
			}
		}
	}
	for _, child := range children {
		l.task(b, child, entities[child], indent+"    ", drawn)
	}
}

// told is an event that is no step of a member's, in words.
func told(word string, e *busEvent) string {
	parts := []string{word}
	for _, p := range []struct{ name, value string }{
		{"", e.Alias}, {"→", e.To}, {"by", e.By}, {"strategy", e.Strategy}, {"winner", e.Winner},
	} {
		if p.value != "" {
			parts = append(parts, strings.TrimSpace(p.name+" "+p.value))
		}
	}
	for _, v := range e.Votes {
		parts = append(parts, fmt.Sprintf("%d for %s", v.Count, strings.Join(v.Aliases, "+")))
	}
	for _, s := range e.Scores {
		parts = append(parts, fmt.Sprintf("%s %g", s.Alias, s.Score))
	}
	if e.Tied {
		parts = append(parts, "tied")
	}
	return strings.Join(parts, " ")
}
