package orchestrate

import (
	"context"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/intents"
)

// notObject is the error of a mapping whose result is not a JSON object. Its
// text is the result's kind.
type notObject string

func (n notObject) Error() string { return "it makes " + string(n) }

// input returns the payload for a member's task.
func (w *work) input(ctx context.Context, p *Participant, a memberCall) (json.RawMessage, error) {
	if p.Input == nil || a.plain {
		return a.payload, nil
	}
	facts := w.facts(a.payload, nil)
	if a.apart {
		facts.Output, facts.Outputs, facts.State.Confidence = nil, nil, nil
	}
	v, err := facts.Exact()
	if err != nil {
		return nil, err
	}
	made, err := p.Input.Result(ctx, v)
	if err != nil {
		return nil, err
	}
	switch kind := jsontext.Value(made).Kind(); kind {
	case '{':
		return made, nil
	case '0':
		return nil, notObject("a number")
	case '"':
		return nil, notObject("a string")
	case '[':
		return nil, notObject("a list")
	default:
		return nil, notObject(string(made))
	}
}

// holds reports whether a member's condition is satisfied (AAIF, Condition
// Expressions). A condition that cannot be evaluated is not satisfied, and is
// logged.
func (w *work) holds(ctx context.Context, member int, input json.RawMessage) (bool, error) {
	p := &w.plan.Members[member]
	if p.When == nil {
		return true, nil
	}
	v, err := w.facts(input, nil).Value()
	if err == nil {
		var ok bool
		if ok, err = p.When.Eval(ctx, v); err == nil {
			return ok, nil
		}
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	w.log.Warn("a condition is not satisfied: it could not be evaluated", "id", w.task.Envelope.ID, "corr", w.task.Envelope.Corr, "step", p.Alias, "err", err)
	return false, nil
}

// facts are the facts for a condition or a mapping of the team.
func (w *work) facts(input, output json.RawMessage) condition.Facts {
	e, used := w.task.Envelope, w.spent()
	f := condition.Facts{
		Team: true, Input: input, Output: output, TaskInput: w.task.Input(), Outputs: map[string]json.RawMessage{},
		Task: &condition.Task{ID: e.ID, Intent: e.Intent, From: e.From, To: e.To, Corr: e.Corr, Priority: string(e.Priority), Attempt: 1},
		State: &condition.State{
			Status: string(aaif.RunRunning), InputTokens: used.InputTokens, OutputTokens: used.OutputTokens, CostUSD: float64(used.CostUSD) / float64(model.Dollar),
		},
	}
	var returns map[string]string // outputs of a run that its model leads
	if w.run != nil {
		cp := w.run.View()
		if w.plan.Pattern == ModelLed {
			returns = returned(cp)
		}
		f.State.Run, f.State.Iteration = cp.Doc.RunID, int(cp.Doc.Iteration.Int64())
		f.Task.Attempt = cp.Mesh.Attempt + 1
		f.Variables = json.RawMessage(cp.Doc.Variables)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.pos.Outcomes {
		o := w.pos.Outcomes[i]
		if text, ok := returns[o.Call]; ok {
			o.Output = json.RawMessage(text)
		}
		if o.OK() && !o.Skipped {
			f.Outputs[o.Alias] = o.Output
			if o.Instead != "" { // the step has an output, even if another member gave it
				f.Outputs[o.Instead] = o.Output
			}
			f.Output = o.Output
		}
	}
	if output != nil {
		f.Output = output
	}
	f.State.Confidence = intents.Confidence(f.Output)
	return f
}
