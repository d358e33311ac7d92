package mesh

import "github.com/aeemesh/aeemesh/intents"

// PublishStep publishes an event about a part of the task on bus.mesh.run; intent is
// intents.RunStepStarted or another of that group. It sets Task, Run and Instance, removes
// confidential parts of the error and truncates long texts. Like every event it is sent at
// most once and without a confirmation; a failure to send it is logged. With
// [EventsFailures] only steps that failed are published.
func (t *Task) PublishStep(intent string, step intents.StepEvent) {
	step.Task, step.Run = t.Envelope.ID, ""
	if t.run != nil {
		step.Run = t.run.ID()
	}
	t.host.events.Step(intent, t.Envelope.Corr, step, t.Envelope.Trace)
}
