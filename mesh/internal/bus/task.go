package bus

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
)

// A Task has the facts about a task that an event contains.
type Task struct {
	Envelope *envelope.Envelope
	Queued   time.Time       // when it arrived
	Usage    json.RawMessage // so far; nil: not known

	// Of a durable task: its run and, once it is claimed, the run's epoch and attempt, and its
	// status if it is parked.
	Run     string
	Claimed bool
	Epoch   uint64
	Attempt int // counted from 1
	Parked  string

	To, Child string // the receiver, and its task, if the task was delegated
}

// Task publishes on bus.mesh.task what happens to a task. The event never contains
// the task's payload, which is confidential between sender and receiver.
func (a *Agent) Task(intent string, t Task, problem *envelope.Error) {
	if a.FailuresOnly && problem == nil {
		return
	}
	e := t.Envelope
	b := append(make([]byte, 0, 256), `{"task":`...)
	b = envelope.AppendString(b, e.ID)
	b = append(b, `,"intent":`...)
	b = envelope.AppendString(b, e.Intent)
	b = append(b, `,"sender":`...)
	b = envelope.AppendString(b, e.From)
	b = append(b, `,"instance":`...)
	b = envelope.AppendString(b, a.Instance)
	if e.ReplyTo != "" {
		b = append(b, `,"parent":`...)
		b = envelope.AppendString(b, clip.Text(e.ReplyTo, 128))
	}
	if t.Run != "" {
		b = t.appendRun(b)
	}
	if intent != intents.TaskStarted {
		b = append(b, `,"duration_ms":`...)
		b = appendMillis(b, time.Since(t.Queued))
	}
	if t.Usage != nil {
		b = append(append(b, `,"usage":`...), t.Usage...)
	}
	if t.To != "" {
		b = append(b, `,"handed_to":`...)
		b = envelope.AppendString(b, t.To)
		b = append(b, `,"child":`...)
		b = envelope.AppendString(b, t.Child)
	}
	if problem != nil {
		b = append(b, `,"error":`...)
		b = append(b, fault.Public(problem).Payload()...)
	}
	a.publish(nil, TopicTask, intent, e.Corr, append(b, '}'), e.Trace)
}

// appendRun appends the members that events of a run have beyond those of a task.
func (t *Task) appendRun(b []byte) []byte {
	b = append(b, `,"run":`...)
	b = envelope.AppendString(b, t.Run)
	if t.Claimed {
		b = append(b, `,"epoch":`...)
		b = strconv.AppendUint(b, t.Epoch, 10)
		b = append(b, `,"attempt":`...)
		b = strconv.AppendInt(b, int64(t.Attempt), 10)
		if t.Parked != "" {
			b = append(b, `,"status":`...)
			b = envelope.AppendString(b, t.Parked)
		}
	}
	return b
}

// appendMillis writes a duration as milliseconds with three decimals.
func appendMillis(b []byte, d time.Duration) []byte {
	return strconv.AppendFloat(b, float64(d.Microseconds())/1000, 'f', -1, 64)
}

// Step publishes an event about a part of a task on bus.mesh.run. It sets Instance, removes
// confidential parts of the error and truncates long texts.
func (a *Agent) Step(intent, corr string, step intents.StepEvent, trace json.RawMessage) {
	if a.FailuresOnly && step.Error == nil {
		return
	}
	step.Instance = a.Instance
	payload, err := json.Marshal(publicStep(step))
	if err != nil { // of a number or a usage that JSON does not have
		a.Log.Warn("event not sent", "intent", intent, "corr", corr, "err", err)
		return
	}
	a.publish(nil, TopicRun, intent, corr, payload, trace)
}

// maxDetail bounds, in bytes, the texts in an event that this mesh did not write.
const maxDetail = 1 << 10

// publicStep returns the part of a step that may be published, with bounded texts.
func publicStep(s intents.StepEvent) intents.StepEvent {
	for _, name := range []*string{&s.Pattern, &s.Step, &s.Alias, &s.To, &s.Child, &s.Then, &s.Until, &s.By, &s.Strategy, &s.Winner} {
		*name = clip.Text(*name, 256)
	}
	s.Detail = clip.Text(s.Detail, maxDetail)
	if s.Error != nil {
		s.Error = fault.Public(s.Error)
		s.Error.Code, s.Error.Message = envelope.Code(clip.Text(string(s.Error.Code), 128)), clip.Text(s.Error.Message, maxDetail)
	}
	if len(s.Usage) > maxDetail {
		s.Usage = nil // too long: this mesh did not write it
	}
	s.Scores = slices.Clone(s.Scores[:min(len(s.Scores), intents.MaxVoters)])
	for i := range s.Scores {
		s.Scores[i].Alias = clip.Text(s.Scores[i].Alias, 256)
	}
	s.Votes = slices.Clone(s.Votes[:min(len(s.Votes), intents.MaxVoters)])
	named := intents.MaxVoters
	for i, v := range s.Votes {
		n := min(len(v.Aliases), named)
		named -= n
		s.Votes[i].Aliases = slices.Clone(v.Aliases[:n])
		for j, alias := range s.Votes[i].Aliases {
			s.Votes[i].Aliases[j] = clip.Text(alias, 256)
		}
	}
	return s
}
