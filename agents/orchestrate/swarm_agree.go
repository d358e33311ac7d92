package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
)

// agree finds the output that counts, by the document's strategy (AAIF,
// orchestration.consensus), and notes in the record how it was found. It
// returns that output; nil if all outputs are to be merged.
func (s *swarm) agree(ctx context.Context, given []Outcome) (json.RawMessage, error) {
	s.rec.account(given, -1, nil)
	for _, alias := range s.cast.Asked {
		if !slices.ContainsFunc(given, func(o Outcome) bool { return o.Alias == alias }) {
			s.rec.Cancelled = append(s.rec.Cancelled, alias)
		}
	}
	if s.rec.Answered < max(1, s.plan.Extras.MinResults) {
		return nil, s.tooFew(given)
	}
	switch s.strategy() {
	case aaif.ConsensusMajorityVote:
		return s.vote(given)
	case aaif.ConsensusBestOfN:
		return s.bestOf(ctx, given)
	case aaif.ConsensusReferee:
		return s.referee(ctx, given)
	case aaif.ConsensusFirstSuccess:
		return s.first(given), nil
	}
	return nil, nil
}

// voted publishes on the bus how the members agreed.
func (s *swarm) voted(detail string) {
	e := intents.StepEvent{Pattern: string(Swarm), Step: "swarm", Strategy: string(s.rec.Strategy), Winner: s.rec.Winner, Tied: s.rec.Tied, Detail: detail}
	for _, v := range s.rec.Votes {
		e.Votes = append(e.Votes, intents.StepVotes{Count: v.For, Aliases: v.By})
	}
	for _, v := range s.rec.Scores {
		if v.Score != nil {
			e.Scores = append(e.Scores, intents.StepScore{Alias: v.By[0], Score: *v.Score})
		}
	}
	if c := s.rec.Choice; c != nil {
		e.By = c.By
	}
	s.task.PublishStep(intents.RunVoted, e)
}

// won completes the record once the winning output is known, and returns that
// output.
func (s *swarm) won(given []Outcome, slot int, agreed []string) json.RawMessage {
	s.rec.Results, s.rec.Dissent, s.rec.Truncated = nil, nil, false
	s.rec.account(given, slot, agreed)
	for _, o := range given {
		if o.Slot == slot {
			return o.Output
		}
	}
	return nil
}

func (s *swarm) vote(given []Outcome) (json.RawMessage, error) {
	t := s.ballot().Count(given)
	s.rec.Votes, s.rec.Abstained, s.rec.Tied = t.Votes, t.Abstained, t.Tied
	if t.Err != nil {
		s.voted(t.Err.Message)
		return nil, t.Err
	}
	if t.Winner < 0 {
		s.voted("a tie: all are merged")
		return nil, nil
	}
	i := slices.IndexFunc(t.Votes, func(v Vote) bool { return v.slot == t.Winner })
	output := s.won(given, t.Winner, t.Votes[i].By)
	s.voted(fmt.Sprintf("%d of %d votes", t.Votes[i].For, t.voters()))
	return output, nil
}

// ballot returns the document's rules for counting votes.
func (s *swarm) ballot() Ballot {
	b := Ballot{On: Pointer(s.plan.Extras.VoteOn), Tie: s.plan.Extras.Tie}
	if least := s.plan.Consensus.MinVotes; least.IsSet() {
		b.MinVotes = int(min(least.Int64(), math.MaxInt32))
	}
	return b
}

// first returns the output of the member that answered first; if several
// outcomes were committed together, of the first in document order.
func (s *swarm) first(given []Outcome) json.RawMessage {
	s.mu.Lock()
	slot := -1
	for _, o := range s.pos.Outcomes { // in the order in which they became known
		if o.OK() && slices.Contains(s.cast.Asked, o.Alias) && o.Slot < len(s.pos.Members) {
			slot = o.Slot
			break
		}
	}
	s.mu.Unlock()
	output := s.won(given, slot, nil)
	s.voted("")
	return output
}

// bestOf asks each evaluator for a score of every different output, or the agent's own model if
// there is no evaluator.
func (s *swarm) bestOf(ctx context.Context, given []Outcome) (json.RawMessage, error) {
	candidates := Candidates(given, s.task.Envelope.ID)
	judged := make([][]Judgement, len(candidates))
	var err error
	switch {
	case len(candidates) == 1: // there is no choice
		return s.won(given, candidates[0].slot, candidates[0].By), nil
	case len(s.cast.Evaluators) > 0:
		err = s.scores(ctx, candidates, judged)
	case s.agentModel == nil: // the document has got the strategy while the run waited
		return nil, noEvaluator()
	default:
		err = s.ownScores(ctx, candidates, judged)
	}
	if err != nil {
		return nil, err
	}
	slot, scores, problem := Best(candidates, judged, s.plan.Extras.Tie)
	s.rec.Scores = scores
	switch {
	case problem != nil:
		problem.Retryable = scores[0].Score == nil && s.scorerMayPass()
		s.voted(problem.Message)
		return nil, problem
	case slot < 0:
		s.rec.Tied = true
		s.voted("equal scores: all are merged")
		return nil, nil
	}
	output := s.won(given, slot, nil)
	s.rec.Tied = len(scores) > 1 && scores[1].Score != nil && *scores[1].Score == *scores[0].Score
	s.voted(fmt.Sprintf("score %g", *scores[0].Score))
	return output, nil
}

// scorerMayPass reports whether a scorer failed in a way that a retry may change. Then only the
// failed scorers are asked again: see [work.anew].
func (s *swarm) scorerMayPass() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.pos.Outcomes, func(o Outcome) bool { return o.Slot >= s.scoreSlot(0, 0) && o.Err != nil && o.Err.Retryable })
}

// scores calls each evaluator for a score of each candidate.
func (s *swarm) scores(ctx context.Context, candidates []Candidate, judged [][]Judgement) error {
	f := s.fan(stageJudges, s.merges())
	f.width = max(f.width, 1)
	for e, alias := range s.cast.Evaluators {
		i, slot, err := s.place(alias)
		for _, c := range candidates {
			at := s.scoreSlot(e, c.slot)
			if err != nil && s.ended(at) == nil {
				return err
			}
			f.add(memberCall{key: fmt.Sprintf("swarm/score/%d/%d", slot, c.slot), slot: at, member: i, payload: scorePayload(s.input, c), plain: true, schema: scoreSchema})
		}
	}
	if err := f.run(ctx); err != nil {
		return err
	}
	if err := s.commit(ctx, stepTeam("swarm", fmt.Sprintf("%d outputs were scored", len(candidates)), 0)); err != nil {
		return err
	}
	for e, alias := range s.cast.Evaluators {
		for i, c := range candidates {
			j := Judgement{By: alias}
			switch o := s.ended(s.scoreSlot(e, c.slot)); {
			case o == nil:
				j.Error = "it was not asked"
			case o.Err != nil && o.Err.Code == envelope.CodeTooLarge:
				j.Error = fmt.Sprintf("the output of %s has %d bytes and does not fit one message: %s", strings.Join(c.By, ", "), len(c.Output), public(o.Err))
			case !o.OK():
				j.Error = public(o.Err)
			default:
				score, reason, err := readScore(o.Output)
				j.Reason = reason
				if err != nil {
					j.Error = err.Error()
				} else {
					j.Score = &score
				}
			}
			judged[i] = append(judged[i], j)
		}
	}
	return nil
}

// ownScores asks the agent's own model for all scores in one question.
func (s *swarm) ownScores(ctx context.Context, candidates []Candidate, judged [][]Judgement) error {
	slot := s.scoreSlot(0, 0)
	o := s.ended(slot)
	if o == nil {
		begun := time.Now()
		answer, err := s.agentModel.Ask(ctx, Question{Asked: scoresText, Input: scoresPayload(s.input, candidates), Schema: scoresSchema(len(candidates))})
		o = &Outcome{Slot: slot, Alias: OwnModel, Began: begun.UTC(), MS: millis(time.Since(begun)), Output: answer}
		if err != nil {
			if err := fatal(ctx, err); err != nil {
				return err
			}
			o.Output, o.Err = nil, envelope.AsError(err)
		}
		s.record(*o)
		if err := s.commit(ctx, stepTeam(OwnModel, "the outputs were scored", o.MS)); err != nil {
			return err
		}
	}
	var scores []float64
	var err error = errors.New("the model gave no answer")
	switch {
	case o.OK():
		scores, err = readScores(o.Output, len(candidates))
	case o.Err != nil:
		err = errors.New(public(o.Err))
	}
	for i := range candidates {
		j := Judgement{By: OwnModel}
		switch {
		case err != nil:
			j.Error = err.Error()
		case math.IsNaN(scores[i]):
			j.Error = "score is no number"
		default:
			j.Score = &scores[i]
		}
		judged[i] = append(judged[i], j)
	}
	return nil
}

// public is the text of an error that a peer may read.
func public(e *envelope.Error) string { return clip.Text(string(e.Code)+": "+e.Message, maxReason) }

func scoresSchema(n int) json.RawMessage {
	return fmt.Appendf(nil, `{"type":"object","properties":{"scores":{"type":"array","items":{"type":"number"},"minItems":%d,"maxItems":%d}},"required":["scores"],"additionalProperties":false}`, n, n)
}

// referee calls the referee for a decision. If the referee fails or does not
// decide, the swarm fails: no other member may decide.
func (s *swarm) referee(ctx context.Context, given []Outcome) (json.RawMessage, error) {
	alias := s.plan.Members[s.plan.Referee].Alias
	candidates := Candidates(given, s.task.Envelope.ID)
	payload := refereePayload(s.input, candidates)
	f := s.fan(stageJudges, s.merges())
	f.add(memberCall{key: "swarm/referee", slot: s.refereeSlot(), member: s.plan.Referee, payload: payload, plain: true, schema: refereeForm(len(candidates))})
	if err := f.run(ctx); err != nil {
		return nil, err
	}
	if err := s.commit(ctx, stepTeam(alias, "the referee has decided", 0)); err != nil {
		return nil, err
	}
	undecided := func(e *envelope.Error) (json.RawMessage, error) {
		s.voted(e.Message)
		return nil, e
	}
	o := s.ended(s.refereeSlot())
	if !o.OK() {
		if o.Err.Code == envelope.CodeTooLarge && len(payload) > s.room() {
			return undecided(tooMuch(alias, "decide on", given, len(payload)))
		}
		e := swarmError("the referee %s gave no decision: %s: %s", alias, o.Err.Code, o.Err.Message)
		e.Retryable = o.Err.Retryable
		return undecided(e)
	}
	r, err := decision(o.Output, candidates)
	if err != nil {
		s.rec.Choice = &Choice{By: alias, Said: reasonText(o.Output)}
		return undecided(swarmError("the referee %s gave no decision: %v", alias, err))
	}
	s.rec.Choice = &Choice{By: alias, Reason: r.reason}
	if r.choice == 0 {
		s.won(given, -1, nil)
		s.voted("an output of " + alias + "'s own")
		return r.output, nil
	}
	c := candidates[r.choice-1]
	s.rec.Choice.Alias = c.By[0]
	output := s.won(given, c.slot, c.By)
	s.voted("by " + alias)
	return output, nil
}

// decision reads a referee's ruling. An output that equals a candidate counts
// as the choice of that candidate.
func decision(answer json.RawMessage, candidates []Candidate) (ruling, error) {
	r, err := readRuling(answer, len(candidates))
	if !errors.Is(err, errNoDecision) {
		return r, err
	}
	own := Bare(answer)
	if i := slices.IndexFunc(candidates, func(c Candidate) bool { return sameOutput(c.Output, own) }); i >= 0 {
		return ruling{choice: i + 1}, nil
	}
	return r, err
}
