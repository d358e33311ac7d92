package orchestrate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sorted"
)

// A Ballot holds the rules of a majority vote.
type Ballot struct {
	On       Pointer // the part of each output that is voted on; "" is the whole output
	MinVotes int     // how many members must agree; less than 1 is 1
	Tie      Tie     // "" is fail
}

// A Vote is one answer in a majority vote, with the members that gave it.
type Vote struct {
	Value json.RawMessage `json:"value,omitempty"` // in the form in which it is compared, see Count; nil in a [Record] that has no room for it
	For   int             `json:"for"`
	By    []string        `json:"by"` // aliases, in document order

	slot int // of the first member that gave it
}

// A Tally is the result of a majority vote. It does not depend on the order in
// which the outcomes arrived.
type Tally struct {
	// Votes are sorted by number of votes, then by the first member in document
	// order.
	Votes []Vote
	// Abstained are the aliases of members whose answer lacks the part that is
	// voted on, or whose part has a name twice.
	Abstained []string
	// Winner is the slot of the output that won: of the members that gave it,
	// the first in document order. -1 if there is no winner.
	Winner int
	// Tied reports whether more than one answer has the most votes.
	Tied bool
	// Err is why there is no winner; nil if the answers are to be merged.
	Err *envelope.Error
}

// Count counts a majority vote. Outputs, or the parts of them that are voted
// on, are equal if their canonical JSON is (RFC 8785); the order of members,
// white space and the spelling of numbers do not matter. If a double would change
// a number, the numbers are compared as they are written. Outcomes that failed have no vote.
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
	sorted.By(t.Votes, func(x, y Vote) int { return cmp.Compare(y.For, x.For) })
	t.decide(b)
	if t.Err != nil && len(t.Votes) == 0 && b.On != "" && len(t.Abstained) > 0 {
		t.Err.Message += fmt.Sprintf(": %d answered without it%s", len(t.Abstained), plainTexts(outcomes))
	}
	return t
}

// plainTexts returns a text about how many outputs are plain texts, which can be compared only as a
// whole.
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

// Decided reports whether the answers of the missing members, by their slots, cannot change the
// result. Of equal votes on a part of the outputs, the output of the first member is the result, so
// that one more vote for the winner can change it.
func (b Ballot) Decided(outcomes []Outcome, missing []int) bool {
	t := b.Count(outcomes)
	if t.Winner < 0 {
		return false
	}
	first := func(slot int) bool { return slot < t.Winner }
	if b.On != "" && slices.ContainsFunc(missing, first) {
		return false
	}
	second := 0
	if len(t.Votes) > 1 {
		second = t.Votes[1].For
	}
	return t.Votes[0].For > second+len(missing)
}

// vote returns the value that an outcome votes for.
func (b Ballot) vote(o Outcome) (json.RawMessage, bool) {
	part, ok := b.On.Find(o.Output)
	if !ok {
		return nil, false
	}
	value, err := normal(part)
	return value, err == nil
}

// normal returns the form in which outputs are compared: their canonical JSON (RFC 8785), or, if a
// double would change a number, the same with the numbers as they are written. It fails for
// ambiguous JSON, in which a name occurs twice.
func normal(raw json.RawMessage) (json.RawMessage, error) {
	canonical, err := envelope.Canonical(raw)
	if !errors.Is(err, envelope.ErrNumber) {
		return canonical, err
	}
	written := jsontext.Value(raw).Clone()
	err = written.Format(jsontext.ReorderRawObjects(true))
	return json.RawMessage(written), err
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

// voters returns the number of votes.
func (t *Tally) voters() int {
	n := 0
	for _, v := range t.Votes {
		n += v.For
	}
	return n
}

// leaders returns how many answers have the most votes.
func (t *Tally) leaders() int {
	n := 0
	for _, v := range t.Votes {
		if v.For == t.Votes[0].For {
			n++
		}
	}
	return n
}

// inOrder sorts outcomes into document order.
func inOrder(outcomes []Outcome) []Outcome {
	return slices.SortedStableFunc(slices.Values(outcomes), func(x, y Outcome) int { return cmp.Compare(x.Slot, y.Slot) })
}

// swarmError is an error with code E_SWARM: the members' outputs give no
// result.
func swarmError(format string, args ...any) *envelope.Error {
	return envelope.Errorf(envelope.CodeSwarm, format, args...)
}

// sameOutput reports whether two outputs are equal.
func sameOutput(x, y json.RawMessage) bool {
	a, errA := normal(x)
	b, errB := normal(y)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
