package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
)

// The share of the remaining time that is reserved for the judges and the synthesizer, which work
// after the members.
const (
	keepForOthers = 4 // reserve one part in so many
	mostForOthers = 10 * time.Minute
	keepForAnswer = 20 // the same, if no judge or synthesizer follows
	mostForAnswer = time.Second
)

// swarm is the work of a swarm on one task (AAIF, Parallel swarm). It continues
// from the committed outcomes: members that have one are not called again, and
// everything later follows from the outcomes alone.
type swarm struct {
	*work
	input json.RawMessage
	cast  cast
	rec   Record
}

// cast is the assignment of the roles of a swarm, by alias. It is stored in the run's position, so
// that a worker that resumes the run calls the same members.
type cast struct {
	Asked       []string `json:"asked"` // in document order
	Evaluators  []string `json:"evaluators,omitempty"`
	Synthesizer string   `json:"synthesizer,omitempty"`
	// Closed: all members have answered or failed. No member is called after
	// that, even if the mesh retries the whole task, so that the agreement
	// stays.
	Closed bool `json:"closed,omitempty"`
	// KeptMS is the time that is reserved after each stage, in milliseconds. It
	// is computed when the stage begins, anew in each attempt at the task.
	KeptMS map[string]int64 `json:"kept_ms,omitempty"`
}

// swarm has all members whose condition holds do the task at the same time,
// determines their agreement, and merges their outputs.
func (w *work) swarm(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	s := &swarm{work: w, input: input}
	if err := s.casting(ctx); err != nil {
		return nil, err
	}
	s.rec = Record{Strategy: s.strategy(), Members: len(s.cast.Asked)}
	if err := s.members(ctx); err != nil {
		return nil, err
	}
	given := s.given()
	won, err := s.agree(ctx, given)
	if err != nil {
		return nil, s.refused(err)
	}
	return s.result(ctx, given, won)
}

func (s *swarm) strategy() aaif.ConsensusStrategy {
	if s.plan.Consensus == nil {
		return ""
	}
	return s.plan.Consensus.Strategy
}

// casting assigns the roles, once in a run.
func (s *swarm) casting(ctx context.Context) error {
	if s.pos.Swarm != nil {
		if err := json.Unmarshal(s.pos.Swarm, &s.cast); err != nil {
			return fmt.Errorf("read the swarm's position from the run's checkpoint: %w", err)
		}
		return nil
	}
	workers := s.plan.Workers()
	for _, i := range s.plan.Evaluators {
		s.cast.Evaluators = append(s.cast.Evaluators, s.plan.Members[i].Alias)
	}
	if s.plan.Synthesizer >= 0 {
		s.cast.Synthesizer = s.plan.Members[s.plan.Synthesizer].Alias
	}
	workers, err := s.roles(ctx, workers)
	if err != nil {
		return err
	}
	for _, i := range workers {
		ok, err := s.holds(ctx, i, s.input)
		if err != nil {
			return err
		}
		if ok {
			s.cast.Asked = append(s.cast.Asked, s.plan.Members[i].Alias)
		}
	}
	if len(s.cast.Asked) == 0 {
		if s.plan.Fallback < 0 {
			return envelope.Errorf(envelope.CodeNoRoute, "no subagent takes this task: no condition holds, and there is no fallback")
		}
		s.cast.Asked = []string{s.plan.Members[s.plan.Fallback].Alias}
	}
	if s.strategy() == aaif.ConsensusBestOfN && len(s.cast.Evaluators) == 0 && s.agentModel == nil {
		return noEvaluator()
	}
	s.keepCast()
	return nil
}

func noEvaluator() error {
	return envelope.Errorf(envelope.CodeInternal, "the strategy best_of_n has no evaluator: no subagent has the role evaluator, and the agent has no model")
}

// heard returns the aliases of a swarm's members after all of them have ended.
func (p *position) heard() []string {
	var c cast
	if p.Swarm == nil || json.Unmarshal(p.Swarm, &c) != nil || !c.Closed {
		return nil
	}
	return c.Asked
}

// forgetTimes removes the times that a swarm has reserved after its stages.
func (p *position) forgetTimes() {
	var c cast
	if p.Swarm == nil || json.Unmarshal(p.Swarm, &c) != nil || c.KeptMS == nil {
		return
	}
	c.KeptMS = nil
	p.Swarm = mustJSON(c)
}

// roles removes members from the workers whose own definitions declare that they judge or merge, if
// the document needs such a role and names no member for it (AAIF, orchestration.role). It waits a
// little for definitions that cannot be read now, because the roles stay as they are.
func (s *swarm) roles(ctx context.Context, workers []int) ([]int, error) {
	judges := s.strategy() == aaif.ConsensusBestOfN && len(s.cast.Evaluators) == 0
	merges := s.cast.Synthesizer == ""
	if !judges && !merges {
		return workers, nil
	}
	var rest []int
	var unread error
	until := time.Now().Add(min(findPatience, s.left()/10))
	for _, i := range workers {
		p := &s.plan.Members[i]
		role := aaif.Role("")
		if p.Role == "" && !IsEntity(p.Ref) {
			m, err := s.find(ctx, p, memberCall{}, until)
			if err != nil {
				if err := fatal(ctx, err); err != nil {
					return nil, err
				}
				if errors.Is(err, ErrUnanswered) {
					unread = err
				}
			}
			if err == nil && m.Def != nil && m.Def.Agent.Orchestration != nil && len(m.Def.Agent.Orchestration.Subagents) == 0 {
				role = m.Def.Agent.Orchestration.Role
			}
		}
		switch {
		case judges && role == aaif.RoleEvaluator:
			s.cast.Evaluators = append(s.cast.Evaluators, p.Alias)
		case merges && role == aaif.RoleSynthesizer && s.cast.Synthesizer == "":
			s.cast.Synthesizer = p.Alias
		default:
			rest = append(rest, i)
		}
	}
	if judges && len(s.cast.Evaluators) == 0 && s.agentModel == nil && unread != nil {
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the strategy best_of_n has no evaluator, unless it is one whose definition cannot be read now: %w", unread)
	}
	return rest, nil
}

// keepCast puts the cast into the position; the next commit stores it.
func (s *swarm) keepCast() {
	raw := mustJSON(s.cast)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pos.Swarm = raw
	s.fresh++
}

// place returns the index in the plan of the member with an alias, and the slot of its outcome. It
// returns the slot also with the error for a member that is gone, which may have answered.
func (s *swarm) place(alias string) (member, slot int, err error) {
	member = slices.IndexFunc(s.plan.Members, func(p Participant) bool { return p.Alias == alias })
	slot = slices.Index(s.pos.Members, alias)
	if member < 0 || slot < 0 {
		return 0, slot, envelope.Errorf(envelope.CodeInternal, "the run cannot go on: %s is no longer a subagent", alias)
	}
	return member, slot, nil
}

// scoreSlot, mergeSlot and refereeSlot return slots of outcomes. The slot of a member or the referee
// is its index in the plan with which the run began, so that it stays if the document changes; the
// slots of scores, of the synthesizer, and of a referee that the document has got since, follow.
func (s *swarm) scoreSlot(evaluator, candidate int) int {
	return len(s.pos.Members)*(1+evaluator) + candidate
}
func (s *swarm) mergeSlot() int { return len(s.pos.Members) * (1 + len(s.pos.Members)) }
func (s *swarm) refereeSlot() int {
	if slot := slices.Index(s.pos.Members, s.plan.Members[s.plan.Referee].Alias); slot >= 0 {
		return slot
	}
	return s.mergeSlot() + 1
}

// reserve returns the part of the remaining time that is reserved for judges and the synthesizer,
// or for the answer.
func reserve(left time.Duration, others bool) time.Duration {
	if others {
		return min(left/keepForOthers, mostForOthers)
	}
	return min(left/keepForAnswer, mostForAnswer)
}

// keep returns the part of the remaining time that is reserved for what follows a stage. A worker
// that resumes the run reserves the same, but leaves the stage enough time to read the answers that
// have arrived meanwhile.
func (s *swarm) keep(stage string, left time.Duration, others bool) time.Duration {
	ms, resumed := s.cast.KeptMS[stage]
	if !resumed {
		kept := reserve(left, others)
		if s.run != nil {
			s.cast.KeptMS = maps.Clone(s.cast.KeptMS)
			if s.cast.KeptMS == nil {
				s.cast.KeptMS = map[string]int64{}
			}
			s.cast.KeptMS[stage] = kept.Milliseconds()
			s.keepCast()
			s.stage(stepTeam("swarm", "has its times", 0)) // with the first call
		}
		return kept
	}
	return min(time.Duration(ms)*time.Millisecond, left-min(left/keepForOthers, mostForAnswer))
}

// The stages of a swarm.
const (
	stageMembers = "members"
	stageJudges  = "judges"
	stageMerge   = "merge"
)

// merges reports whether a synthesizer or the agent's own model may have to
// merge the outputs, which takes time.
func (s *swarm) merges() bool {
	return s.cast.Synthesizer != "" || s.agentModel != nil && (s.strategy() == "" || s.plan.Extras.Tie == TieMerge)
}

// members calls all members that have no outcome yet.
func (s *swarm) members(ctx context.Context) error {
	if s.cast.Closed {
		return nil
	}
	judged := s.strategy() == aaif.ConsensusBestOfN || s.strategy() == aaif.ConsensusReferee
	f := s.fan(stageMembers, judged || s.merges())
	f.inTurn = !s.plan.Parallel // judges do not see one another's answers
	for _, alias := range s.cast.Asked {
		i, slot, err := s.place(alias)
		if err != nil && s.ended(slot) == nil {
			return err
		}
		// A member's input must not depend on which members have answered already: after a crash
		// the input must be the same.
		f.add(memberCall{key: fmt.Sprintf("swarm/%d", slot), slot: slot, member: i, payload: s.input, apart: s.plan.Parallel})
	}
	least := max(1, s.plan.Extras.MinResults)
	answered, lost := 0, 0
	f.each = func(o *Outcome) error {
		if o.OK() {
			answered++
			if s.strategy() == aaif.ConsensusFirstSuccess {
				return errEnough
			}
			return nil
		}
		lost++
		if i, _, err := s.place(o.Alias); err == nil && s.plan.Members[i].Extras.OnError == OnErrorFail {
			return failed(o)
		}
		if len(s.cast.Asked)-lost < least {
			return errTooFew
		}
		return nil
	}
	if s.strategy() == aaif.ConsensusMajorityVote {
		f.decided = func() bool { return answered >= least && s.ballot().Decided(s.given(), s.missing()) }
	}
	err := f.run(ctx)
	var problem *envelope.Error
	switch {
	case err == nil, errors.Is(err, errEnough), errors.Is(err, errTooFew):
	case errors.As(err, &problem) && ctx.Err() == nil: // a member fails the swarm: keep the answers of the others
		if err := s.commit(ctx, stepTeam("swarm", "a member has failed", 0)); err != nil {
			return err
		}
		return err
	default:
		return err
	}
	if answered >= least || errors.Is(err, errEnough) {
		s.cast.Closed = true
		s.keepCast()
	}
	return s.commit(ctx, stepTeam("swarm", fmt.Sprintf("%d of %d answered", answered, len(s.cast.Asked)), 0))
}

// given returns the outcomes of the members, in the order of the document with which the run began.
func (s *swarm) given() []Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Outcome
	for _, o := range s.pos.Outcomes {
		if o.Slot < len(s.pos.Members) && slices.Contains(s.cast.Asked, o.Alias) {
			out = append(out, o)
		}
	}
	return inOrder(out)
}

// missing returns the slots of the members without an outcome.
func (s *swarm) missing() (slots []int) {
	for _, alias := range s.cast.Asked {
		if slot := slices.Index(s.pos.Members, alias); s.ended(slot) == nil {
			slots = append(slots, slot)
		}
	}
	return slots
}

// refused adds the members' answers to an error.
func (s *swarm) refused(err error) error {
	var e *envelope.Error
	if !errors.As(err, &e) || e.Code != envelope.CodeSwarm {
		return err
	}
	s.rec.trim(s.room(), maxValues)
	c := *e
	c.Details = append(slices.Clip(c.Details), envelope.Member{Name: SwarmMember, Value: s.rec.JSON()})
	return &c
}

// tooFew is the error of a swarm with fewer than min_results answers.
func (s *swarm) tooFew(given []Outcome) *envelope.Error {
	e := swarmError("%d of %d members have failed, and min_results is %d", s.rec.Failed, s.rec.Members, max(1, s.plan.Extras.MinResults))
	for _, o := range given {
		if o.Err != nil {
			e.Message += fmt.Sprintf("; %s: %s", o.Alias, o.Err.Code)
			break
		}
	}
	e.Retryable = slices.ContainsFunc(given, func(o Outcome) bool { return o.Err != nil && o.Err.Retryable })
	return e
}
