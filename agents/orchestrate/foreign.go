package orchestrate

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// A run that another platform began records its progress in pipeline_position
// and subagent_states (AAIF, Cross-Platform Migration Protocol, step 5). This
// file compares these with the document here: completed members are not called
// again, and their outputs are the input of the next one. A position that does
// not fit ends the run with an error, because guessing could repeat a step or
// leave one out.

// foreign is the state of a team in the checkpoint of another platform.
type foreign struct {
	w      *work
	at     aaif.PipelinePosition
	states []aaif.SubagentState
	used   []bool // which of states are matched to members
}

// adopt takes over the progress of a run that began on another platform.
func (w *work) adopt(doc *aaif.State) error {
	f := &foreign{w: w, states: doc.SubagentStates, used: make([]bool, len(doc.SubagentStates))}
	if doc.PipelinePosition != nil {
		f.at = *doc.PipelinePosition
	}
	if w.plan.Pattern == ModelLed {
		return nil // the conversation has the calls and their results
	}
	for i := range f.states {
		s := &f.states[i]
		member := w.plan.member(s.Alias)
		switch {
		case member < 0:
			return unfit("it had a subagent %q, and the document here has none of that name", clip.Cut(s.Alias, maxName))
		case aaif.IsUUID(w.plan.Members[member].Ref) && s.AgentID != w.plan.Members[member].Ref:
			return unfit("its subagent %q was another agent (%s)", clip.Cut(s.Alias, maxName), clip.Cut(s.AgentID, maxName))
		case s.StateID != "" && (s.Status == aaif.SubagentRunning || s.Status == aaif.SubagentPaused):
			return unfit("its subagent %q is in the middle of its work, with a state of its own (%s): let it end there first", clip.Cut(s.Alias, maxName), clip.Cut(s.StateID, maxName))
		}
	}
	switch w.plan.Pattern {
	case Pipeline:
		return f.pipeline()
	case Router:
		return f.router()
	case Swarm:
		return f.swarm()
	}
	return nil
}

// maxName bounds, in bytes, the names of another platform in an error.
const maxName = 128

func unfit(format string, args ...any) error {
	return envelope.Errorf(envelope.CodeInternal, "the run, which another platform began, cannot go on here: "+format, args...)
}

// is reports whether a name stands for a member.
func (f *foreign) is(member int, name string) bool { return f.w.plan.means(member, name) }

// take returns the first state of a member that was not returned before; nil if there is none.
func (f *foreign) take(member int) *aaif.SubagentState {
	for i := range f.states {
		if !f.used[i] && f.is(member, f.states[i].Alias) {
			f.used[i] = true
			return &f.states[i]
		}
	}
	return nil
}

// completed reports whether a subagent has completed its work.
func completed(s *aaif.SubagentState) bool {
	return s != nil && (s.Status == aaif.SubagentCompleted || s.Status == "" && present(s))
}

func present(s *aaif.SubagentState) bool {
	return len(s.Output) > 0 && !bytes.Equal(bytes.TrimSpace(s.Output), []byte("null"))
}

// outcome returns the outcome of a completed member.
func (f *foreign) outcome(slot, member int, s *aaif.SubagentState) Outcome {
	o := Outcome{Slot: slot, Alias: f.w.plan.Members[member].Alias, Output: json.RawMessage("null")}
	if s == nil {
		return o
	}
	o.AgentID = s.AgentID
	if !present(s) {
		return o
	}
	switch raw := bytes.TrimSpace(s.Output); raw[0] {
	case '{':
		o.Output = Bare(json.RawMessage(raw))
	case '"':
		var text string
		if json.Unmarshal(raw, &text) == nil {
			o.Output = mustJSON(map[string]string{"text": text})
		}
	default: // treated like an answer of a model that is not an object
		o.Output = mustJSON(map[string]string{"text": string(raw)})
	}
	return o
}

// pipeline adopts a pipeline: the completed members must be its first steps, in
// order, and the last of them must have an output.
func (f *foreign) pipeline() error {
	steps, completedSteps := f.w.plan.Steps, f.at.CompletedSteps
	if len(completedSteps) > len(steps) {
		return unfit("%d steps were completed, and the pipeline here has %d", len(completedSteps), len(steps))
	}
	for i, name := range completedSteps {
		if !f.is(steps[i], name) {
			return unfit("it had completed %q as its step %d, which is %q here", clip.Cut(name, maxName), i+1, f.w.plan.Members[steps[i]].Alias)
		}
	}
	if err := f.checkPosition(steps, len(completedSteps)); err != nil {
		return err
	}
	done := len(completedSteps)
	var outcomes []Outcome
	var last *aaif.SubagentState
	for i, member := range steps {
		s := f.take(member)
		alias := f.w.plan.Members[member].Alias
		switch {
		case i < done && s != nil && !completed(s):
			return unfit("step %q was completed, and its subagent is %s", alias, s.Status)
		case i > done && completed(s):
			return unfit("step %q was completed, and %q before it was not", alias, f.w.plan.Members[steps[done]].Alias)
		case i == done && completed(s):
			done++ // it had ended, but its platform had not updated the position
		case i >= done:
			continue
		}
		outcomes, last = append(outcomes, f.outcome(i, member, s)), s
	}
	if done > 0 && (last == nil || !present(last)) {
		return unfit("step %q was completed, and subagent_states has no output of it, which the next one needs", outcomes[done-1].Alias)
	}
	f.w.pos.Outcomes = outcomes
	return nil
}

// checkPosition compares current_step, current_subagent and remaining_steps with the
// steps here, of which done are completed. Platforms differ in whether the
// current step is one of the remaining steps.
func (f *foreign) checkPosition(steps []int, done int) error {
	at := min(done, len(steps)-1)
	for _, name := range []string{f.at.CurrentStep, f.at.CurrentSubagent} {
		if name != "" && !f.is(steps[at], name) {
			return unfit("it stands at %q, and the step after those that were completed is %q here", clip.Cut(name, maxName), f.w.plan.Members[steps[at]].Alias)
		}
	}
	left := f.at.RemainingSteps
	if len(left) == 0 {
		return nil
	}
	same := func(rest []int) bool {
		return slices.EqualFunc(rest, left, func(member int, name string) bool { return f.is(member, name) })
	}
	if same(steps[done:]) || f.at.CurrentStep != "" && done < len(steps) && same(steps[done+1:]) {
		return nil
	}
	return unfit("the steps that remain are not those of the pipeline here")
}

// router adopts a router: the member that was chosen, and its answer.
func (f *foreign) router() error {
	chosen := -1
	choose := func(member int) error {
		if chosen >= 0 && chosen != member {
			return unfit("it was given to %q and to %q, and a router chooses one", f.w.plan.Members[chosen].Alias, f.w.plan.Members[member].Alias)
		}
		chosen = member
		return nil
	}
	for _, name := range append(slices.Clone(f.at.CompletedSteps), f.at.CurrentSubagent) {
		if name == "" {
			continue
		}
		member := f.w.plan.member(name)
		if member < 0 {
			return unfit("it was given to %q, and the document here has no subagent of that name", clip.Cut(name, maxName))
		}
		if err := choose(member); err != nil {
			return err
		}
	}
	for member := range f.w.plan.Members {
		s := f.take(member)
		if s == nil || s.Status == aaif.SubagentPending {
			continue
		}
		if err := choose(member); err != nil {
			return err
		}
		if completed(s) {
			if !present(s) {
				return unfit("%q was completed, and subagent_states has no output of it", s.Alias)
			}
			f.w.pos.Outcomes = []Outcome{f.outcome(0, member, s)}
		}
	}
	switch {
	case chosen < 0:
		return nil
	case len(f.at.CompletedSteps) > 0 && len(f.w.pos.Outcomes) == 0:
		return unfit("%q was completed, and subagent_states has no output of it", f.w.plan.Members[chosen].Alias)
	}
	f.w.pos.Routed = f.w.plan.Members[chosen].Alias
	return nil
}

// swarm adopts a swarm: the members that have answered. Judges and the
// synthesizer are called here, with the answers of all members.
func (f *foreign) swarm() error {
	workers := f.w.plan.Workers()
	for _, member := range workers {
		s := f.take(member)
		if completed(s) {
			if !present(s) {
				return unfit("%q was completed, and subagent_states has no output of it", s.Alias)
			}
			f.w.pos.Outcomes = append(f.w.pos.Outcomes, f.outcome(member, member, s))
		}
	}
	for _, name := range f.at.CompletedSteps {
		member := f.w.plan.member(name)
		switch {
		case member < 0:
			return unfit("%q was completed, and the document here has no subagent of that name", clip.Cut(name, maxName))
		case slices.Contains(workers, member) && f.w.ended(member) == nil:
			return unfit("%q was completed, and subagent_states has no output of it", clip.Cut(name, maxName))
		}
	}
	return nil
}
