package orchestrate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/aeemesh/aeemesh/envelope"
)

// A Ballot says how a majority vote is counted.
type Ballot struct {
	On       Pointer // the part of each output that is voted on; "" is the whole
	MinVotes int     // how many must agree; less than 1 is 1
	Tie      Tie     // "" is fail
}

// A Vote is one answer of a majority vote, and who gave it.
type Vote struct {
	Value json.RawMessage `json:"value"` // in canonical form (RFC 8785)
	For   int             `json:"for"`
	By    []string        `json:"by"` // aliases, in document order

	slot int // of the first of them
}

// A Tally is a majority vote, counted. It is the same whatever the order in which
// the outcomes came in.
type Tally struct {
	// Votes are most votes first; where two have as many, the one that has the
	// first member in document order.
	Votes []Vote
	// Abstained are the aliases of those who answered, but have nothing at the
	// place that is voted on, or something that has no canonical form.
	Abstained []string
	// Winner is the slot whose output stands for the answer that won: the first
	// in document order of those who gave it. -1: nobody has won.
	Winner int
	// Tied tells that more than one answer has the most votes.
	Tied bool
	// Err is why nobody has won, nil where the answers are to be merged.
	Err *envelope.Error
}

// Count counts a majority vote. Outputs, or their parts that are voted on, are
// equal if their canonical JSON is (RFC 8785): whatever their order of members,
// white space and spelling of numbers. Outcomes that failed have no vote.
func (b Ballot) Count(outcomes []Outcome) Tally {
	t := Tally{Winner: -1}
	index := map[string]int{}
	for _, o := range inOrder(outcomes) {
		if !o.OK() {
			continue
		}
		value, ok := b.vote(o)
		if !ok {
			t.Abstained = append(t.Abstained, o.Alias)
			continue
		}
		i, known := index[string(value)]
		if !known {
			i = len(t.Votes)
			index[string(value)] = i
			t.Votes = append(t.Votes, Vote{Value: value, slot: o.Slot})
		}
		t.Votes[i].For++
		t.Votes[i].By = append(t.Votes[i].By, o.Alias)
	}
	slices.SortStableFunc(t.Votes, func(x, y Vote) int { return cmp.Compare(y.For, x.For) })
	t.decide(b)
	if t.Err != nil && len(t.Votes) == 0 && b.On != "" && len(t.Abstained) > 0 {
		t.Err.Message += fmt.Sprintf(": %d answered without it%s", len(t.Abstained), plainTexts(outcomes))
	}
	return t
}

// plainTexts says how many outputs are plain texts, in which there is nothing to
// vote on but the text.
func plainTexts(outcomes []Outcome) string {
	n := 0
	for _, o := range outcomes {
		var members map[string]json.RawMessage
		if o.OK() && json.Unmarshal(o.Output, &members) == nil && len(members) == 1 && members["text"] != nil {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of them in plain text (response_format json makes objects)", n)
}

// Decided reports whether the vote has a winner whatever out further members
// vote for.
func (b Ballot) Decided(outcomes []Outcome, out int) bool {
	t := b.Count(outcomes)
	if t.Winner < 0 || t.Tied {
		return false
	}
	second := 0
	if len(t.Votes) > 1 {
		second = t.Votes[1].For
	}
	return t.Votes[0].For > second+out
}

// vote is what an outcome votes for.
func (b Ballot) vote(o Outcome) (json.RawMessage, bool) {
	part, ok := b.On.Find(o.Output)
	if !ok {
		return nil, false
	}
	canonical, err := envelope.Canonical(part)
	return canonical, err == nil
}

func (t *Tally) decide(b Ballot) {
	least := max(1, b.MinVotes)
	most := 0
	if len(t.Votes) > 0 {
		most = t.Votes[0].For
	}
	t.Tied = len(t.Votes) > 1 && t.Votes[1].For == most
	switch {
	case most < least && most == 0:
		t.Err = swarmError("no member of the swarm has voted%s", b.place())
	case most < least:
		t.Err = swarmError("no majority: %d of %d votes agree%s, and min_votes is %d", most, t.voters(), b.place(), least)
	case !t.Tied, b.Tie == TieFirst:
		t.Winner = t.Votes[0].slot
	case b.Tie == TieMerge:
	default:
		t.Err = swarmError("no majority: %d answers have %d of %d votes each%s", t.leaders(), most, t.voters(), b.place())
	}
}

func (b Ballot) place() string {
	if b.On == "" {
		return ""
	}
	return fmt.Sprintf(" on %s", b.On)
}

// voters is how many votes there are.
func (t *Tally) voters() int {
	n := 0
	for _, v := range t.Votes {
		n += v.For
	}
	return n
}

// leaders is how many answers have the most votes.
func (t *Tally) leaders() int {
	n := 0
	for _, v := range t.Votes {
		if v.For == t.Votes[0].For {
			n++
		}
	}
	return n
}

// inOrder are outcomes in document order.
func inOrder(outcomes []Outcome) []Outcome {
	return slices.SortedStableFunc(slices.Values(outcomes), func(x, y Outcome) int { return cmp.Compare(x.Slot, y.Slot) })
}

// swarmError is E_SWARM: what the members gave is no result.
func swarmError(format string, args ...any) *envelope.Error {
	return envelope.Errorf(envelope.CodeSwarm, format, args...)
}

// sameOutput reports whether two outputs say the same.
func sameOutput(x, y json.RawMessage) bool {
	a, errA := envelope.Canonical(x)
	b, errB := envelope.Canonical(y)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
