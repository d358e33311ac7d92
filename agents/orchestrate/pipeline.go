package orchestrate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
)

// pipeline runs the steps one after the other, each with the output of the
// previous one as input (AAIF, Sequential pipeline). Every outcome is committed
// before the next step begins.
func (w *work) pipeline(ctx context.Context) (json.RawMessage, error) {
	input := w.task.Input()
	var on []envelope.Reference // the results from which input was made
	for slot := range w.plan.Steps {
		o := w.ended(slot)
		if o == nil {
			done, err := w.step(ctx, slot, input, on)
			if err != nil {
				return nil, err
			}
			w.record(done)
			if err := w.commit(ctx, stepTeam(done.Alias, detail(&done), done.MS)); err != nil {
				return nil, err
			}
			o = &done
		}
		if o.OK() {
			input = o.Output
			if o.Result != nil {
				on = []envelope.Reference{*o.Result}
			}
			if o.Skipped || w.ended(slot+1) != nil {
				continue // there is no output, or the handoff rules were evaluated before
			}
			if payload, over, err := w.handOff(ctx, o.Output); over {
				return payload, err
			}
		} else if w.plan.Members[w.plan.Steps[slot]].Extras.OnError != OnErrorSkip {
			return nil, failed(o)
		}
	}
	if last := w.ended(len(w.plan.Steps) - 1); last != nil && (last.Skipped || !last.OK()) {
		return input, intents.CheckConfidence(&w.task.Requires, input) // no step was asked for one
	}
	return input, nil
}

// step runs one step, or the fallback in its place. A step whose condition does
// not hold is skipped: the next one gets its input.
func (w *work) step(ctx context.Context, slot int, input json.RawMessage, on []envelope.Reference) (Outcome, error) {
	member := w.plan.Steps[slot]
	alias := w.plan.Members[member].Alias
	if ok, err := w.holds(ctx, member, input); err != nil {
		return Outcome{}, err
	} else if !ok {
		w.log.Debug("a step is skipped: its condition does not hold", "id", w.task.Envelope.ID, "corr", w.task.Envelope.Corr, "step", alias)
		return Outcome{Slot: slot, Alias: alias, Output: slices.Clone(input), Skipped: true}, nil
	}
	key := fmt.Sprintf("step/%d", slot)
	final := slot == len(w.plan.Steps)-1
	out, err := w.ask(ctx, memberCall{key: key, slot: slot, member: member, payload: input, on: on, final: final})
	if err != nil || out.OK() {
		return out, err
	}
	return w.instead(ctx, out, memberCall{key: key + "/fallback", slot: slot, payload: input, on: on, final: final})
}

// instead calls the fallback in place of a failed member, if the document says so.
func (w *work) instead(ctx context.Context, o Outcome, a memberCall) (Outcome, error) {
	i := slices.IndexFunc(w.plan.Members, func(p Participant) bool { return p.Alias == o.Alias })
	if i < 0 || w.plan.Members[i].Extras.OnError != OnErrorFallback || w.plan.Fallback < 0 || w.plan.Fallback == i {
		return o, nil
	}
	a.member = w.plan.Fallback
	out, err := w.ask(ctx, a)
	out.Instead = o.Alias
	return out, err
}

// detail describes an outcome in a few words, for the run's history.
func detail(o *Outcome) string {
	switch {
	case o.Skipped:
		return "passed over"
	case o.Err != nil:
		return string(o.Err.Code)
	case o.Instead != "":
		return "instead of " + o.Instead
	}
	return o.Entity
}
