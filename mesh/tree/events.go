package tree

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
)

// taskEvent is the payload of an event on bus.mesh.task.
type taskEvent struct {
	Task     string          `json:"task"`
	Intent   string          `json:"intent"`
	Sender   string          `json:"sender"`
	Instance string          `json:"instance"`
	Parent   string          `json:"parent"`
	Run      string          `json:"run"`
	Epoch    uint64          `json:"epoch"`
	Attempt  int             `json:"attempt"`
	Status   string          `json:"status"`
	Duration float64         `json:"duration_ms"`
	Usage    json.RawMessage `json:"usage"`
	Error    *envelope.Error `json:"error"`
	HandedTo string          `json:"handed_to"`
	Child    string          `json:"child"`
}

// Event takes an event of the bus that was seen at that time, and reports
// whether it is of use: an event of this corr about a task or a step.
//
// All events must be timed by one clock, as one server or one listener has it.
func (b *Builder) Event(at time.Time, e *envelope.Envelope) bool {
	if e.Type != envelope.TypeEvent || e.Corr != b.corr {
		return false
	}
	if intents.RunEvent(e.Intent) {
		var s intents.StepEvent
		return json.Unmarshal(e.Payload, &s) == nil && b.Step(at, e.From, e.Intent, s)
	}
	var t taskEvent
	if !isTaskEvent(e.Intent) || json.Unmarshal(e.Payload, &t) != nil || t.Task == "" {
		return false
	}
	return b.taskEvent(at, e.From, e.Intent, t)
}

func isTaskEvent(intent string) bool {
	switch intent {
	case intents.TaskStarted, intents.TaskFinished, intents.TaskFailed, intents.TaskRetrying, intents.TaskParked:
		return true
	}
	return false
}

func (b *Builder) taskEvent(at time.Time, entity, intent string, t taskEvent) bool {
	f := b.task(t.Task)
	if f == nil || !f.saidBy(entity) {
		return false
	}
	if t.Epoch < f.epoch {
		return false // from a worker that had lost the run
	}
	if intent == intents.TaskStarted && f.own.state == Running && f.epoch > 0 && t.Epoch > f.epoch {
		f.takenOver++
	}
	f.under(t.Parent, true)
	set(&f.intent, t.Intent)
	set(&f.sender, t.Sender)
	set(&f.run, t.Run)
	set(&f.instance, t.Instance)
	f.durable = f.durable || t.Run != ""
	f.epoch, f.attempt = t.Epoch, max(f.attempt, t.Attempt)
	switch intent {
	case intents.TaskStarted:
		f.own.is(Running, at, 0, nil, t.Usage)
	case intents.TaskFinished:
		f.own.is(Done, at, t.Duration, nil, t.Usage)
		if t.Child != "" {
			f.own.state = HandedOff
			set(&f.handedTo, t.HandedTo)
			if next := b.childOf(f, intents.StepEvent{To: t.HandedTo, Child: t.Child}); next != nil {
				next.handoff = true
				next.sent(at)
			}
		}
	case intents.TaskFailed:
		f.own.is(Failed, at, t.Duration, t.Error, t.Usage)
	case intents.TaskRetrying:
		f.own.is(Retrying, at, t.Duration, t.Error, t.Usage)
	case intents.TaskParked:
		f.own.is(Waiting, at, 0, nil, t.Usage)
		f.own.status = t.Status
	}
	return true
}

// cutLast divides a dotted name before its last token.
func cutLast(name string) (before, last string, ok bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return "", name, false
	}
	return name[:i], name[i+1:], true
}
