package orchestrate

import (
	"encoding/json"
	"slices"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// SwarmMember is the reserved member of a result, or of an error with code
// E_SWARM, that holds the swarm's [Record].
const SwarmMember = "swarm"

// maxKept bounds, in bytes, the outputs and the values of votes that a [Record]
// repeats, because a result must fit into one message. The run's checkpoint has
// all outputs.
const maxKept = 256 << 10

// A Record explains the result of a swarm: the votes, the winning member, the
// other outputs, and the failures.
type Record struct {
	Strategy aaif.ConsensusStrategy `json:"strategy,omitempty"` // absent: all outputs were merged

	Members  int `json:"members"`  // members that were called
	Answered int `json:"answered"` // members that gave an output
	Failed   int `json:"failed"`   // members that failed or did not answer in time

	// Winner is the alias of the member whose output is the consensus; absent
	// if there is no consensus, or if the output is the referee's own.
	Winner string `json:"winner,omitempty"`
	// MergedBy says what made the result from the outputs: an alias,
	// [OwnModel], or "default"; absent if the result is the winner's output.
	MergedBy string `json:"merged_by,omitempty"`

	Votes     []Vote   `json:"votes,omitempty"`     // of majority_vote, most votes first
	Abstained []string `json:"abstained,omitempty"` // answers without the part that is voted on
	Tied      bool     `json:"tied,omitempty"`      // several answers had the most votes
	Scores    []Score  `json:"scores,omitempty"`    // of best_of_n, best first
	Choice    *Choice  `json:"choice,omitempty"`    // of referee

	// Results are outputs that agree with the result, or were merged into it,
	// but are not equal to it. Dissent are the outputs that lost.
	Results  []MemberResult `json:"results,omitempty"`
	Dissent  []MemberResult `json:"dissent,omitempty"`
	Failures []Failure      `json:"failures,omitempty"`
	// Cancelled are members that were not awaited, because their answers could
	// not change the result any more.
	Cancelled []string `json:"cancelled,omitempty"`
	// Truncated reports that some outputs of results or dissent, values of votes, or texts of
	// judgements and failures were left out, because there was no room for them.
	Truncated bool `json:"truncated,omitempty"`
	// LeftOut are members whose outputs the default merge lacks, because the
	// result would not fit into one message with them.
	LeftOut []string `json:"left_out,omitempty"`
}

// account fills in the outcomes. agreed are the aliases of members that agree
// with the winner. All other answers are dissent, unless there is no winner:
// then all are results.
func (s *Record) account(outcomes []Outcome, winner int, agreed []string) {
	s.Failures = failuresOf(outcomes)
	s.Failed = len(s.Failures)
	s.Answered = len(outcomes) - s.Failed
	var won json.RawMessage
	for _, o := range outcomes {
		if o.Slot == winner && o.OK() {
			s.Winner, won = o.Alias, o.Output
		}
	}
	for _, o := range inOrder(outcomes) {
		if !o.OK() || won != nil && (o.Slot == winner || sameOutput(o.Output, won)) {
			continue
		}
		r := MemberResult{o.Alias, o.Entity, o.Output}
		if s.Strategy == "" || won == nil && s.Choice == nil || slices.Contains(agreed, o.Alias) {
			s.Results = append(s.Results, r)
		} else {
			s.Dissent = append(s.Dissent, r)
		}
	}
	s.trimOutputs(maxKept)
}

// trim removes what does not fit into room bytes. It keeps at most maxKept bytes of outputs and
// values of votes; the texts of judges and errors get the rest.
func (s *Record) trim(room int) {
	s.trimWords(room - s.trimOutputs(min(room, maxKept)))
}

// trimOutputs removes the outputs, and then the values of votes, that do not
// fit into room bytes. It returns how many bytes of them are left.
func (s *Record) trimOutputs(room int) (kept int) {
	keep := func(raw *json.RawMessage) {
		if kept+len(*raw) > max(room, 0) {
			*raw, s.Truncated = nil, true
		}
		kept += len(*raw)
	}
	for _, list := range [][]MemberResult{s.Results, s.Dissent} {
		for i := range list {
			keep(&list[i].Output)
		}
	}
	for i := range s.Votes {
		keep(&s.Votes[i].Value)
	}
	return kept
}

// trimWords removes the reasons and the errors' messages that do not fit into
// room bytes.
func (s *Record) trimWords(room int) {
	keep := func(words *string) {
		if len(*words) > max(room, 0) {
			*words, s.Truncated = "", true
		}
		room -= len(*words)
	}
	if s.Choice != nil {
		keep(&s.Choice.Reason)
		keep(&s.Choice.Said)
	}
	for i := range s.Failures {
		keep(&s.Failures[i].Error.Message)
	}
	for i := range s.Scores {
		for j := range s.Scores[i].Judgements {
			keep(&s.Scores[i].Judgements[j].Reason)
			keep(&s.Scores[i].Judgements[j].Error)
		}
	}
}

// abridged returns the record for a task that already contains the outputs and the failures, and that
// has room for room bytes more. It shares nothing with the record that is trimmed.
func (s Record) abridged(room int) *Record {
	s.Results, s.Dissent, s.Failures = nil, nil, nil
	s.Truncated = slices.ContainsFunc(s.Votes, func(v Vote) bool { return v.Value == nil })
	s.Votes, s.Scores = slices.Clone(s.Votes), slices.Clone(s.Scores)
	for i := range s.Scores {
		s.Scores[i].Judgements = slices.Clone(s.Scores[i].Judgements)
	}
	if s.Choice != nil {
		c := *s.Choice
		s.Choice = &c
	}
	s.trim(room)
	return &s
}

// JSON encodes the record.
func (s *Record) JSON() json.RawMessage { return mustJSON(s) }
