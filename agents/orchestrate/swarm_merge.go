package orchestrate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/intents"
)

// result makes the swarm's result: the synthesizer's output, if there is a
// synthesizer; else the output that won; else the output of the agent's own
// model; else the [DefaultMerge]. The swarm's record is kept for the payload.
func (s *swarm) result(ctx context.Context, given []Outcome, won json.RawMessage) (json.RawMessage, error) {
	payload, by, err := s.merge(ctx, given, won)
	if err != nil {
		return nil, err
	}
	s.rec.MergedBy = by
	if by == mergedByDefault { // the default merge contains them
		s.rec.Results, s.rec.Failures = nil, nil
	}
	s.rec.trim(s.roomBeside(payload))
	if by != "" {
		e := intents.StepEvent{Pattern: string(Swarm), Step: "swarm", By: by, Strategy: string(s.rec.Strategy), Detail: fmt.Sprintf("%d results", s.rec.Answered)}
		if s.rec.Answered == 1 {
			e.Detail = "1 result"
		}
		if o := s.ended(s.mergeSlot()); o != nil && o.OK() {
			e.Child = o.TaskID
		}
		s.task.PublishStep(intents.RunMerged, e)
	}
	s.account = s.rec.JSON()
	return payload, nil
}

const mergedByDefault = "default"

func (s *swarm) merge(ctx context.Context, given []Outcome, won json.RawMessage) (payload json.RawMessage, by string, err error) {
	var consensus *Record
	if s.rec.Strategy != "" {
		consensus = s.rec.abridged(s.roomBeside(mergePayload(s.input, given, nil)))
	}
	switch {
	case s.cast.Synthesizer != "":
		return s.synthesize(ctx, given, won, consensus)
	case won != nil:
		return won, "", nil
	case s.agentModel != nil:
		payload, err := s.agentModel.Work(ctx, mergePayload(s.input, given, consensus))
		return payload, OwnModel, err
	}
	return s.unmerged(given), mergedByDefault, nil
}

// unmerged is the default merge, without the outputs that do not fit.
func (s *swarm) unmerged(given []Outcome) (payload json.RawMessage) {
	payload, s.rec.LeftOut, s.rec.Truncated = mergeWithin(given, s.room())
	return payload
}

// room returns how many bytes of a result and its record certainly fit into one
// message.
func (s *swarm) room() int {
	most := s.task.MaxMessage()
	if most <= 0 {
		most = 1 << 20
	}
	return most - most/4
}

// roomBeside returns how many bytes and JSON values a record may have beside a payload.
func (s *swarm) roomBeside(payload json.RawMessage) (bytes, values int) {
	_, n := extent(payload)
	return s.room() - len(payload), maxValues - n
}

// synthesize calls the synthesizer. If it fails, the swarm fails, unless the
// document skips the step: then the result is the same as without a
// synthesizer.
func (s *swarm) synthesize(ctx context.Context, given []Outcome, won json.RawMessage, consensus *Record) (json.RawMessage, string, error) {
	alias := s.cast.Synthesizer
	i, _, err := s.place(alias)
	if err != nil {
		return nil, "", err
	}
	f := s.fan(stageMerge, false)
	payload := mergePayload(s.input, given, consensus)
	f.add(memberCall{key: "swarm/merge", slot: s.mergeSlot(), member: i, payload: payload, on: madeOf(given), merge: true, final: true})
	if err := f.run(ctx); err != nil {
		return nil, "", err
	}
	if err := s.commit(ctx, stepTeam(alias, "the results were merged", 0)); err != nil {
		return nil, "", err
	}
	o := s.ended(s.mergeSlot())
	if o.OK() {
		return o.Output, alias, nil
	}
	if s.plan.Members[i].Extras.OnError != OnErrorSkip {
		if o.Err.Code == envelope.CodeTooLarge && len(payload) > s.room() {
			return nil, "", s.refused(tooMuch(alias, "merge", given, len(payload)))
		}
		return nil, "", failed(o)
	}
	by := ""
	if won == nil {
		won, by = s.unmerged(given), mergedByDefault
	}
	return won, by, intents.CheckConfidence(&s.task.Requires, won) // no member was asked for one
}

// tooMuch is the error for a judge's or synthesizer's task that is too large;
// it names the members with the largest outputs.
func tooMuch(alias, todo string, given []Outcome, size int) *envelope.Error {
	const named = 3
	large := slices.DeleteFunc(slices.Clone(given), func(o Outcome) bool { return !o.OK() })
	sorted.By(large, func(a, b Outcome) int { return cmp.Compare(len(b.Output), len(a.Output)) })
	var sizes []string
	for _, o := range large[:min(named, len(large))] {
		sizes = append(sizes, fmt.Sprintf("%s (%d bytes)", o.Alias, len(o.Output)))
	}
	return swarmError("what %s would have to %s has %d bytes and does not fit one message; the largest outputs are of %s", alias, todo, size, strings.Join(sizes, ", "))
}
