package mesh

import (
	"slices"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
)

// TellRun tells bus.mesh.run of a step within the task: intent is one of
// intents.RunStepStarted and so on. It fills in Task, Run and Instance, and cuts
// what everybody need not know, or is too long for an event. Like every event it
// is sent at most once, and nobody waits for it: where it cannot be sent that is
// logged. A node that tells failures only ([EventsFailures]) tells steps that
// failed.
func (t *Task) TellRun(intent string, step intents.StepEvent) {
	if t.host.node.cfg.TaskEvents == EventsFailures && step.Error == nil {
		return
	}
	step.Task, step.Run, step.Instance = t.Envelope.ID, "", t.host.id
	if t.run != nil {
		step.Run = t.run.ID()
	}
	t.host.tell(BusRun, intent, t.Envelope.Corr, mustJSON(publicStep(step)), t.Envelope.Trace)
}

// maxDetail bounds what an event repeats of words that others chose.
const maxDetail = 1 << 10

// publicStep is a step as everybody may know it, within bounds.
func publicStep(s intents.StepEvent) intents.StepEvent {
	for _, name := range []*string{&s.Pattern, &s.Step, &s.Alias, &s.To, &s.Child, &s.Then, &s.Until, &s.By, &s.Strategy, &s.Winner} {
		*name = clip.Text(*name, 256)
	}
	s.Detail = clip.Text(s.Detail, maxDetail)
	if s.Error != nil {
		s.Error = publicError(s.Error)
		s.Error.Code, s.Error.Message = envelope.Code(clip.Text(string(s.Error.Code), 128)), clip.Text(s.Error.Message, maxDetail)
	}
	if len(s.Usage) > maxDetail {
		s.Usage = nil // it is no account of this mesh's
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
