package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
)

// router gives the task to one member (AAIF, Dynamic routing): the first in the
// document's order whose condition holds, else the fallback. The choice is
// committed before the member is called.
func (w *work) router(ctx context.Context) (json.RawMessage, error) {
	input := w.task.Input()
	if w.pos.Routed == "" {
		member, by, err := w.route(ctx, input)
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		w.pos.Routed = w.plan.Members[member].Alias
		w.fresh++
		w.mu.Unlock()
		w.task.PublishStep(intents.RunRouted, intents.StepEvent{Pattern: string(Router), Alias: w.pos.Routed, By: by})
		if err := w.commit(ctx, stepTeam(w.pos.Routed, "routed by "+by, 0)); err != nil {
			return nil, err
		}
	}
	member := slices.IndexFunc(w.plan.Members, func(p Participant) bool { return p.Alias == w.pos.Routed })
	if member < 0 {
		return nil, envelope.Errorf(envelope.CodeInternal, "the run cannot go on: it was routed to %s, which is no longer a subagent", w.pos.Routed)
	}
	o := w.ended(0)
	if o == nil {
		out, err := w.ask(ctx, memberCall{key: "route", member: member, payload: input, final: true})
		if err == nil && !out.OK() {
			out, err = w.instead(ctx, out, memberCall{key: "route/fallback", payload: input, final: true})
		}
		if err != nil {
			return nil, err
		}
		w.record(out)
		if err := w.commit(ctx, stepTeam(out.Alias, detail(&out), out.MS)); err != nil {
			return nil, err
		}
		o = &out
	}
	if !o.OK() {
		return nil, failed(o)
	}
	return o.Output, nil
}

// route chooses a member, and returns the criterion.
func (w *work) route(ctx context.Context, input json.RawMessage) (int, string, error) {
	if w.plan.ByModel && w.agentModel != nil {
		return w.routeByModel(ctx, input)
	}
	for _, i := range w.plan.Workers() {
		ok, err := w.holds(ctx, i, input)
		switch {
		case err != nil:
			return 0, "", err
		case ok:
			return i, intents.ByCondition, nil
		}
	}
	if w.plan.Fallback >= 0 {
		return w.plan.Fallback, intents.ByFallback, nil
	}
	return 0, "", envelope.Errorf(envelope.CodeNoRoute, "no subagent takes this task: no condition holds, and there is no fallback")
}

// routeByModel lets the agent's model choose, if no subagent has a condition.
func (w *work) routeByModel(ctx context.Context, input json.RawMessage) (int, string, error) {
	var names []string
	var about strings.Builder
	for _, i := range w.plan.Workers() {
		p := &w.plan.Members[i]
		names = append(names, p.Alias)
		fmt.Fprintf(&about, "\n- %s", p.Alias)
		if m, err := w.dir.Find(ctx, p.Ref); err == nil && m.Def != nil {
			fmt.Fprintf(&about, ": %s", strings.TrimSpace(m.Def.Agent.Goal))
			if len(m.Def.Agent.Skills) > 0 {
				fmt.Fprintf(&about, " (skills: %s)", strings.Join(m.Def.Agent.Skills, ", "))
			}
		}
	}
	quoted, err := json.Marshal(names)
	if err != nil {
		return 0, "", err
	}
	answer, err := w.agentModel.Ask(ctx, Question{
		Asked:  "Choose which of your agents is to do the task below. They are:" + about.String() + "\nAnswer with the name of one of them.",
		Input:  input,
		Bare:   "agent",
		Schema: fmt.Appendf(nil, `{"type":"object","properties":{"agent":{"type":"string","enum":%s},"reason":{"type":"string"}},"required":["agent"],"additionalProperties":false}`, quoted),
	})
	if err != nil && !errors.Is(err, ErrAnswer) {
		return 0, "", err
	}
	var choice struct{ Agent string }
	if err == nil && json.Unmarshal(answer, &choice) == nil {
		for i, p := range w.plan.Members {
			if p.Alias == choice.Agent && slices.Contains(names, p.Alias) {
				return i, intents.ByModel, nil
			}
		}
	}
	if w.plan.Fallback >= 0 {
		return w.plan.Fallback, intents.ByFallback, nil
	}
	return 0, "", envelope.Errorf(envelope.CodeNoRoute, "no subagent takes this task: the model named none of them")
}
