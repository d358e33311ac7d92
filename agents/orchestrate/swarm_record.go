package orchestrate

import (
	"encoding/json"
	"slices"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// SwarmMember is the reserved member of a result, and of an error with code
// E_SWARM, that says how a swarm came to it: a [Record].
const SwarmMember = "swarm"

// maxKept bounds the outputs that a [Record] repeats, in bytes: a result travels
// in one message. What is left out is in the run's checkpoint.
const maxKept = 256 << 10

// A Record says how a swarm came to its result: who voted for what, whose output
// it is, what the others said, and who failed.
type Record struct {
	Strategy aaif.ConsensusStrategy `json:"strategy,omitempty"` // absent: all were merged

	Members  int `json:"members"`  // who were asked
	Answered int `json:"answered"` // who gave a result
	Failed   int `json:"failed"`   // who gave an error, or nothing in time

	// Winner is the alias whose output the consensus is; absent where there is
	// none, or it is the referee's own.
	Winner string `json:"winner,omitempty"`
	// MergedBy is who made the result of the outputs: an alias, [OwnModel], or
	// "default"; absent where the winner's output is the result.
	MergedBy string `json:"merged_by,omitempty"`

	Votes     []Vote   `json:"votes,omitempty"`     // of majority_vote, most first
	Abstained []string `json:"abstained,omitempty"` // answered without anything that could be voted on
	Tied      bool     `json:"tied,omitempty"`      // the first places were equal
	Scores    []Score  `json:"scores,omitempty"`    // of best_of_n, best first
	Choice    *Choice  `json:"choice,omitempty"`    // of referee

	// Results are outputs that agree with the result, or were merged into it,
	// but say more or other than it does. Dissent are those that lost.
	Results  []MemberResult `json:"results,omitempty"`
	Dissent  []MemberResult `json:"dissent,omitempty"`
	Failures []Failure      `json:"failures,omitempty"`
	// Cancelled are who was not waited for, since what they would say could
	// change nothing any more.
	Cancelled []string `json:"cancelled,omitempty"`
	// Truncated tells that some results or dissent are there without output,
	// which were too long.
	Truncated bool `json:"truncated,omitempty"`
	// LeftOut are whose outputs the default merge lacks, since with them the
	// result would not fit one message.
	LeftOut []string `json:"left_out,omitempty"`
}

// account fills in what outcomes there were. agreed are the slots of those that
// agree with the winner's; all others that answered dissent, unless nobody has
// won: then all are results.
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
	s.trim(maxKept)
}

// trim takes those outputs out that do not fit so many bytes.
func (s *Record) trim(room int) {
	for _, list := range [][]MemberResult{s.Results, s.Dissent} {
		for i := range list {
			if r := &list[i]; len(r.Output) > room {
				r.Output, s.Truncated = nil, true
			} else {
				room -= len(r.Output)
			}
		}
	}
}

// JSON is the member's value.
func (s *Record) JSON() json.RawMessage { return mustJSON(s) }
