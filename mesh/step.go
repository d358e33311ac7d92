package mesh

import (
	"slices"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// PublishStep publishes an event about a part of the task on bus.mesh.run; intent is
// intents.RunStepStarted or another of that group. It sets Task, Run and Instance, removes
// confidential parts of the error and truncates long texts. Like every event it is sent at
// most once and without a confirmation; a failure to send it is logged. With
// [EventsFailures] only steps that failed are published.
func (t *Task) PublishStep(intent string, step intents.StepEvent) {
	if t.host.node.cfg.TaskEvents == EventsFailures && step.Error == nil {
		return
	}
	step.Task, step.Run, step.Instance = t.Envelope.ID, "", t.host.id
	if t.run != nil {
		step.Run = t.run.ID()
	}
	t.host.events.publishEvent(BusRun, intent, t.Envelope.Corr, wire.MustJSON(publicStep(step)), t.Envelope.Trace)
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
