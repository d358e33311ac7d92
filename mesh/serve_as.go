package mesh

import (
	"context"
	"encoding/json"
)

// servedAs is how an agent takes a task whose payload is in a protocol of its own.
type servedAs struct {
	intent string // by Agent.Classify; "": not asked for yet
	atOnce bool

	handled string          // by ServeAs; "": intent
	input   json.RawMessage // by ServeAs; nil: the envelope's payload
}

// class returns the intent as which the agent takes the task, and whether it answers the
// task beside the queue; see [Agent].Classify.
func (t *Task) class() (intent string, atOnce bool) {
	if !t.classified {
		t.classified, t.served.intent = true, t.Envelope.Intent
		if t.host != nil && t.host.Classify != nil {
			t.served.intent, t.served.atOnce = t.host.Classify(t.Envelope)
		}
	}
	return t.served.intent, t.served.atOnce && t.run == nil
}

// Intent returns the intent as which the handler does the task: that of [Task.ServeAs], or
// else what [Agent].Classify says, which usually is the envelope's.
func (t *Task) Intent() string {
	if t.served.handled != "" {
		return t.served.handled
	}
	intent, _ := t.class()
	return intent
}

// ServeAs is for a handler that unpacks the payload of a task and gives the task to another
// handler: from now on [Task.Intent] and [Task.Input] return intent and input, a JSON
// object. The mesh still validates the result by the intent that [Agent].Classify returned.
func (t *Task) ServeAs(intent string, input json.RawMessage) {
	t.served.handled, t.served.input = intent, input
}

// atOnceMost is how many tasks are handled beside the queue at once.
const atOnceMost = 4

// runBeside runs a task that is answered beside the queue.
func (h *host) runBeside(t *Task) {
	h.active.Add(1)
	defer h.active.Add(-1)
	defer t.stop(context.Canceled)
	if t.done.Load() {
		return
	}
	t.begins()
	h.execute(t)
}
