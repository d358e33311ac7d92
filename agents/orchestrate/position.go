package orchestrate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/state"
)

// position is the progress of the work on a task. It is stored as x-aeemesh.plan in the run's Agent
// State. The other parts are in the specification's own members: outputs in subagent_states, in the
// order of Outcomes, and a pipeline's progress in pipeline_position.
type position struct {
	Format   int        `json:"format"`
	Pattern  Pattern    `json:"pattern"`
	Steps    []string   `json:"steps,omitempty"`    // of a pipeline, by alias: the document may change during a run
	Members  []string   `json:"members,omitempty"`  // of a swarm, by alias: the plan's members when the run began; slots and keys of calls are indexes into it
	Outcomes []Outcome  `json:"outcomes,omitempty"` // in the order in which they became known
	Chosen   []chosen   `json:"chosen,omitempty"`   // how references were resolved
	Failed   []failure  `json:"failed,omitempty"`   // failed calls of parts that have no outcome yet
	Routed   string     `json:"routed,omitempty"`   // of a router: the alias of the chosen member
	Calls    int        `json:"calls,omitempty"`    // how many calls of members the model has made
	Scope    string     `json:"scope"`              // of the calls: a new scope is a new attempt at the task
	Swarm    swarmState `json:"swarm,omitempty"`
}

// swarmState is the state of a swarm beyond the outcomes.
type swarmState = json.RawMessage

// chosen records the entity to which a reference was resolved when the run first needed it. A
// worker that resumes the run uses the same member.
type chosen struct {
	Key     string `json:"key"` // the key of the call
	Entity  string `json:"entity"`
	AgentID string `json:"agent_id,omitempty"`
}

// failure is a failed call whose part another attempt or another member does. A worker that
// resumes the run does not make the call again.
type failure struct {
	Key     string          `json:"key"` // of the call, without the number of the attempt
	Tries   int             `json:"tries"`
	Durable bool            `json:"durable,omitempty"`
	Err     *envelope.Error `json:"error"`
}

// maxFailed bounds the error of a failed call in bytes: there may be one for each part that waits for
// its next try.
const maxFailed = 4 << 10

// positionFormat is the format of position that this release writes. It reads
// all older formats.
const positionFormat = 1

// begin reads the progress of the run.
func (w *work) begin() error {
	w.pos = position{Format: positionFormat, Pattern: w.plan.Pattern, Scope: w.task.CallID("scope")}
	for _, i := range w.plan.Steps {
		w.pos.Steps = append(w.pos.Steps, w.plan.Members[i].Alias)
	}
	if w.plan.Pattern == Swarm {
		for i := range w.plan.Members {
			w.pos.Members = append(w.pos.Members, w.plan.Members[i].Alias)
		}
	}
	if w.run == nil {
		return nil
	}
	cp := w.run.View()
	if cp.Mesh.Plan == nil {
		return w.adopt(&cp.Doc) // does nothing unless another platform began the run
	}
	var was position
	if err := json.Unmarshal(cp.Mesh.Plan, &was); err != nil {
		return fmt.Errorf("read the team's position from the run's checkpoint: %w", err)
	}
	if was.Format > positionFormat {
		return envelope.Errorf(envelope.CodeUnavailable, "the run was stored by a newer release than this worker's")
	}
	if was.Pattern != w.pos.Pattern || !slices.Equal(was.Steps, w.pos.Steps) {
		return envelope.Errorf(envelope.CodeInternal, "the run cannot go on: the agent's team was changed while it waited (it was a %s, now it is a %s, or its steps are others)", was.Pattern, w.pos.Pattern)
	}
	if len(cp.Doc.SubagentStates) < len(was.Outcomes) {
		return fmt.Errorf("read the team's position from the run's checkpoint: %d outcomes, %d subagent_states", len(was.Outcomes), len(cp.Doc.SubagentStates))
	}
	for i := range was.Outcomes {
		if was.Outcomes[i].Err == nil {
			was.Outcomes[i].Output = cp.Doc.SubagentStates[i].Output
		}
	}
	if was.Members == nil { // stored by an earlier release
		was.Members = w.pos.Members
	}
	scope := w.pos.Scope
	if w.pos = was; w.pos.Scope != scope {
		w.beginAttempt(scope)
	}
	return nil
}

// beginAttempt begins another attempt at a failed run. It keeps the successful outcomes, and the failures
// that are final: those of a swarm whose members have all ended, those of people in a swarm, who are not
// asked again, and those of skipped pipeline steps. The times that a swarm has reserved are forgotten, because less time is left now.
func (w *work) beginAttempt(scope string) {
	w.pos.Scope, w.pos.Failed = scope, nil
	w.pos.forgetTimes()
	heard := w.pos.heard()
	w.pos.Outcomes = slices.DeleteFunc(w.pos.Outcomes, func(o Outcome) bool {
		if w.plan.Pattern == Pipeline && o.Slot >= 0 && o.Slot < len(w.plan.Steps) && w.plan.Members[w.plan.Steps[o.Slot]].Extras.OnError == OnErrorSkip {
			return false
		}
		if w.plan.Pattern == Swarm && w.refusedByPerson(&o) {
			return false
		}
		return o.Err != nil && (o.Slot >= len(w.pos.Members) || !slices.Contains(heard, o.Alias)) // a member's alias may equal the name of the agent's model
	})
	w.pos.Chosen = slices.DeleteFunc(w.pos.Chosen, func(c chosen) bool {
		return !slices.ContainsFunc(w.pos.Outcomes, func(o Outcome) bool { return o.Entity == c.Entity })
	})
}

// refusedByPerson reports whether a member that is a person has declined, or has not answered in
// time. A person who was asked instead of a member is none: that member is called again.
func (w *work) refusedByPerson(o *Outcome) bool {
	member := slices.ContainsFunc(w.plan.Members, func(p Participant) bool { return p.Alias == o.Alias && p.Ref == o.Entity })
	return member && o.Err != nil && !o.Err.Retryable && (o.Err.Code == envelope.CodeDeclined || o.Err.Code == envelope.CodeTimeout) &&
		subject.EntityType(o.Entity) == subject.TypeHuman
}

// save writes the position into a checkpoint.
func (w *work) save(cp *state.Checkpoint) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	raw, err := json.Marshal(&w.pos)
	if err != nil {
		return fmt.Errorf("encode the team's position: %w", err)
	}
	cp.Mesh.Plan = raw
	if w.agentModel != nil && w.plan.Pattern != ModelLed { // in a team led by its model, the model's own work saves itself
		w.agentModel.Save(cp)
	}
	cp.Doc.SubagentStates = make([]aaif.SubagentState, 0, len(w.pos.Outcomes))
	for i := range w.pos.Outcomes {
		o := &w.pos.Outcomes[i]
		s := aaif.SubagentState{Alias: o.Alias, AgentID: w.agentID(o), Status: aaif.SubagentCompleted, Output: o.Output}
		if o.Err != nil {
			s.Status, s.Output = aaif.SubagentFailed, nil
		}
		cp.Doc.SubagentStates = append(cp.Doc.SubagentStates, s)
	}
	cp.Doc.PipelinePosition = w.position()
	return nil
}

// agentID returns the agent_id of the member that gave an outcome; for a member
// without a definition, one derived from its entity.
func (w *work) agentID(o *Outcome) string {
	if o.AgentID != "" {
		return o.AgentID
	}
	for _, c := range w.pos.Chosen {
		if c.Entity == o.Entity && c.AgentID != "" {
			return c.AgentID
		}
	}
	return state.AgentID(o.Entity)
}

// position returns the specification's pipeline_position of the run.
func (w *work) position() *aaif.PipelinePosition {
	p := &aaif.PipelinePosition{}
	if w.plan.Pattern == Pipeline {
		done := min(len(w.pos.Outcomes), len(w.pos.Steps))
		p.CompletedSteps = slices.Clone(w.pos.Steps[:done])
		p.RemainingSteps = slices.Clone(w.pos.Steps[done:])
		if done < len(w.pos.Steps) {
			p.CurrentStep, p.CurrentSubagent = w.pos.Steps[done], w.pos.Steps[done]
		}
		return p
	}
	for i := range w.pos.Outcomes {
		p.CompletedSteps = append(p.CompletedSteps, w.pos.Outcomes[i].Alias)
	}
	p.CurrentStep = string(w.plan.Pattern)
	if w.plan.Pattern == Router {
		p.CurrentSubagent = w.pos.Routed
	}
	return p
}

// record adds outcomes to the position; commit stores it.
func (w *work) record(outcomes ...Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pos.Outcomes = append(w.pos.Outcomes, outcomes...)
	w.pos.forgetFailures(outcomes...)
	w.fresh++
}

// failedBefore returns the error of a call that an earlier owner of the run made, and sets the
// attempt in o; nil if the call must be made.
func (w *work) failedBefore(key string, o *Outcome) *envelope.Error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.pos.Failed {
		if f.Key == key && o.Tries <= f.Tries {
			o.Tries, o.Durable = f.Tries, f.Durable
			return f.Err
		}
	}
	return nil
}

// noteFailure records that a call has failed. A run stores it with the next call.
func (w *work) noteFailure(key string, o *Outcome, problem *envelope.Error) {
	if w.run == nil {
		return
	}
	if len(problem.Payload()) > maxFailed {
		problem = short(problem)
	}
	w.mu.Lock()
	w.pos.Failed = append(slices.DeleteFunc(w.pos.Failed, func(f failure) bool { return f.Key == key }), failure{key, o.Tries, o.Durable, problem})
	w.fresh++
	w.mu.Unlock()
	w.stage(stepTeam(o.Alias, string(problem.Code), 0))
}

// forgetFailures removes the failed calls of parts that have an outcome.
func (p *position) forgetFailures(outcomes ...Outcome) {
	p.Failed = slices.DeleteFunc(p.Failed, func(f failure) bool {
		return slices.ContainsFunc(outcomes, func(o Outcome) bool {
			root := strings.TrimSuffix(o.Key, "/fallback")
			return f.Key == root || strings.HasPrefix(f.Key, root+"/")
		})
	})
}

// ended returns the outcome of a slot; nil if there is none yet.
func (w *work) ended(slot int) *Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.pos.Outcomes {
		if w.pos.Outcomes[i].Slot == slot {
			o := w.pos.Outcomes[i]
			return &o
		}
	}
	return nil
}

// stage stores the position with the next call or commit of the run. If it was called several
// times before that, only the last call encodes the position.
func (w *work) stage(step state.Step) {
	if w.run == nil {
		return
	}
	w.mu.Lock()
	w.stages++
	n := w.stages
	w.mu.Unlock()
	_ = w.run.Stage(step, func(cp *state.Checkpoint) error { // the next commit of an ended run returns the error
		w.mu.Lock()
		last := n >= w.staged
		w.mu.Unlock()
		if !last {
			return nil
		}
		return w.save(cp)
	})
	w.mu.Lock()
	w.staged = max(w.staged, n)
	w.mu.Unlock()
}

// commit stores the position before the next step begins. Goroutines that wait
// for it share one write. An unchanged position is not written, unless the run
// is asked to stop.
func (w *work) commit(ctx context.Context, step state.Step) error {
	if w.run == nil {
		return ctx.Err()
	}
	w.commitMu.Lock()
	defer w.commitMu.Unlock()
	w.mu.Lock()
	fresh := w.fresh
	w.mu.Unlock()
	if fresh == 0 && step.Kind != state.StepPause {
		return ctx.Err() // another goroutine's write included it
	}
	if err := w.run.Commit(ctx, step, w.save); err != nil {
		return err
	}
	w.mu.Lock()
	w.fresh -= fresh
	w.mu.Unlock()
	return nil
}
