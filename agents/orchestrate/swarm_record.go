package orchestrate

import (
	"encoding/json"
	"slices"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
)

// SwarmMember is the reserved member of a result, or of an error with code
// E_SWARM, that holds the swarm's [Record].
const SwarmMember = "swarm"

// maxKept bounds, in bytes, the outputs and the values of votes that a [Record]
// repeats, because a result must fit into one message. The run's checkpoint has
// all outputs.
const maxKept = 256 << 10

// The bounds of a result besides its size. An envelope nests 64 levels, of which it is one. Some of the
// values that it may contain are left for the names of members and for fields other than the payload.
const (
	maxDepth    = 63
	maxValues   = envelope.DefaultMaxValues / 10 * 9
	mergeDepth  = 3 // in a default merge, an output is inside an object, a list and an object
	recordDepth = 4 // in a record, it is inside the object that has the record, too
)

// extent returns how many levels valid JSON nests, and how many values are in it.
func extent(raw []byte) (depth, values int) {
	open, quoted, first := 0, false, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted || c == ' ' || c == '\t' || c == '\r' || c == '\n':
			continue
		case c == '{' || c == '[':
			open++
			depth = max(depth, open)
			values++
			first = true
			continue
		case c == '}' || c == ']':
			open--
			if first {
				values-- // it is empty
			}
		case c == ',':
			values++
		}
		first = false
	}
	return depth, values
}

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
	s.trimOutputs(maxKept, maxValues)
}

// trim removes what does not fit into room bytes and so many JSON values. It keeps at most maxKept
// bytes of outputs and values of votes; the texts of judges and errors get the rest.
func (s *Record) trim(room, values int) {
	s.trimWords(room - s.trimOutputs(min(room, maxKept), values))
}

// trimOutputs removes the outputs, and then the values of votes, that nest too deep or do not
// fit into room bytes and so many JSON values. It returns how many bytes of them are left.
func (s *Record) trimOutputs(room, values int) (kept int) {
	keep := func(raw *json.RawMessage) {
		depth, n := extent(*raw)
		if kept+len(*raw) > max(room, 0) || n > max(values, 0) || depth > maxDepth-recordDepth {
			*raw, s.Truncated, n = nil, true, 0
		}
		kept += len(*raw)
		values -= n
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
// has room for room bytes and so many JSON values more. It shares nothing with the record that is trimmed.
func (s Record) abridged(room, values int) *Record {
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
	s.trim(room, values)
	return &s
}

// JSON encodes the record.
func (s *Record) JSON() json.RawMessage { return mustJSON(s) }
