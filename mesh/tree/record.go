package tree

import (
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
)

// Checkpoint takes the last checkpoint of a durable run. Its status takes precedence over earlier
// events, because events may be lost and checkpoints are not.
func (b *Builder) Checkpoint(c *state.Checkpoint) bool {
	m := &c.Mesh
	f := b.task(m.TaskID)
	if m.TaskID == "" || f == nil || !f.saidBy(m.Entity) {
		return false
	}
	if task, err := c.ReadTask(); err == nil {
		f.under(task.ReplyTo, true)
		set(&f.intent, task.Intent)
		set(&f.sender, task.From)
	}
	if p := c.Doc.PipelinePosition; p != nil {
		slot := int(p.ParallelSlot.Int64())
		f.position = &Position{Current: p.CurrentStep, Completed: p.CompletedSteps, Remaining: p.RemainingSteps, Subagent: p.CurrentSubagent, Slot: slot}
	}
	if u := usageOf(m.Usage); u != nil {
		f.own.usage = u
	}
	f.attempt = max(f.attempt, m.Attempt+1)
	set(&f.instance, m.Owner)
	at, _ := time.Parse(time.RFC3339Nano, c.Doc.CheckpointAt)
	f.record(c.Doc.RunID, m.Epoch, c.Doc.Status, m.StartedAt, at, float64(m.Ran.Milliseconds()))
	if e := c.Doc.Error; e != nil && f.own.state == Failed {
		f.own.code, f.own.message = e.Code, e.Message
	}
	if reply, err := envelope.ParseStored(m.Reply); err == nil {
		f.answered(reply)
	}
	b.below(m, at)
	return true
}

// below takes the tasks that a run has sent, from its checkpoint.
func (b *Builder) below(m *state.Mesh, at time.Time) {
	step := func(at time.Time, intent string, s intents.StepEvent) {
		s.Task = m.TaskID
		b.Step(at, m.Entity, intent, s)
	}
	for _, c := range m.Calls {
		step(c.At, intents.RunStepStarted, intents.StepEvent{Step: c.Key, To: c.To, Child: c.ID, Durable: !c.Live || c.Job})
	}
	for _, w := range m.Waits {
		s := intents.StepEvent{Step: w.Key, To: w.Entity, Child: w.TaskID, Durable: true}
		if w.Void {
			b.void(m, w, s, at)
			continue
		}
		if !w.Until.IsZero() {
			s.Until = w.Until.UTC().Format(envelope.TimeLayout)
		}
		step(w.Asked, intents.RunWaiting, s)
	}
	if h := m.Handed; h != nil {
		step(at, intents.RunHandedOff, intents.StepEvent{To: h.To, Child: h.TaskID, Durable: true})
		if f := b.facts[m.TaskID]; f != nil && f.own.state == Done {
			f.own.state = HandedOff
		}
	}
}

// void takes a wait whose answer is no longer needed: its time is over, or the run went on without
// it.
func (b *Builder) void(m *state.Mesh, w state.Wait, s intents.StepEvent, at time.Time) {
	s.Task = m.TaskID
	b.Step(w.Asked, m.Entity, intents.RunStepStarted, s)
	f := b.facts[w.TaskID]
	switch {
	case f == nil:
	case !w.Until.IsZero() && !at.Before(w.Until):
		f.giveUp(Failed, w.Until, envelope.Errorf(envelope.CodeTimeout, "%s did not answer in time", w.Entity))
	case subject.EntityType(w.Entity) == subject.TypeHuman:
		f.giveUp(Withdrawn, at, nil)
	}
}

// Header is Checkpoint for a sealed document, of which only the header can be read.
func (b *Builder) Header(h state.Header) bool {
	f := b.task(h.TaskID)
	if h.TaskID == "" || f == nil || !f.saidBy(h.Entity) {
		return false
	}
	set(&f.instance, h.Owner)
	f.record(h.Run, h.Epoch, h.Status, time.Time{}, h.At, 0)
	return true
}

// record takes a run's status, unless it is known already.
func (f *facts) record(run string, epoch uint64, status aaif.RunStatus, began, at time.Time, ms float64) {
	f.durable = true
	set(&f.run, run)
	if epoch == 0 {
		return // it has not begun
	}
	f.epoch = max(f.epoch, epoch)
	if !began.IsZero() && (f.own.first.IsZero() || began.Before(f.own.first)) {
		f.own.first = began
	}
	s := Running
	switch {
	case status == aaif.RunCompleted:
		s = Done
	case status == aaif.RunFailed:
		s = Failed
	case state.Parked(status):
		s = Waiting
	}
	if f.own.state == s || f.own.state == HandedOff && s == Done || f.own.state == Retrying && s == Running {
		f.own.status = waitStatus(s, status)
		return
	}
	first := f.own.first
	f.own.is(s, at, ms, nil, nil)
	f.own.status = waitStatus(s, status)
	if !first.IsZero() {
		f.own.first = first
	}
}

func waitStatus(s State, status aaif.RunStatus) string {
	if s == Waiting {
		return string(status)
	}
	return ""
}

// Answer takes the stored answer to the task taskID, for events that were missed.
// durable says that the task was sent over the durable lane.
func (b *Builder) Answer(taskID string, at time.Time, reply *envelope.Envelope) bool {
	f := b.task(taskID)
	if f == nil || reply.Corr != b.corr {
		return false
	}
	f.durable = true
	if !f.ownEntity {
		set(&f.entity, reply.From)
	}
	if f.own.state == "" || f.own.state == Running || f.own.state == Retrying || f.own.state == Waiting {
		first := f.own.first
		switch reply.Type {
		case envelope.TypeResult:
			f.own.is(Done, at, 0, nil, nil)
		case envelope.TypeError:
			f.own.is(Failed, at, 0, envelope.ErrorOf(reply), nil)
		default:
			return false
		}
		f.own.first = first
	}
	f.answered(reply)
	return true
}

// answered reads the usage in an answer, which includes everything below the task.
func (f *facts) answered(reply *envelope.Envelope) {
	if u := usageIn(reply.Payload); u != nil && f.caller.usage == nil {
		f.caller.usage = u
	}
}
