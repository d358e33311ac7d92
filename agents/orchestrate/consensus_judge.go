package orchestrate

import (
	"crypto/sha256"
	"encoding/json"
	"math"
	"strings"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sorted"
)

// A Candidate is one of the different outputs of a swarm, as judges see it:
// without the names or the number of the members that gave it.
type Candidate struct {
	Output json.RawMessage
	By     []string // aliases of the members that gave it, in document order

	slot int // of the first member that gave it
}

// Candidates returns the different outputs among outcomes, which are compared as in
// [Ballot.Count]. Their order does not reveal which member gave them,
// and depends on the outcomes and the seed only.
func Candidates(outcomes []Outcome, seed string) []Candidate {
	type keyed struct {
		Candidate
		place [sha256.Size]byte
	}
	var all []keyed
	index := map[string]int{}
	for _, o := range inOrder(outcomes) {
		if !o.OK() {
			continue
		}
		key := string(o.Output)
		if value, err := normal(o.Output); err == nil {
			key = string(value)
		}
		i, known := index[key]
		if !known {
			i = len(all)
			index[key] = i
			all = append(all, keyed{Candidate{Output: o.Output, slot: o.Slot}, sha256.Sum256([]byte(seed + "\x00" + key))})
		}
		all[i].By = append(all[i].By, o.Alias)
	}
	sorted.By(all, func(a, b keyed) int { return strings.Compare(string(a.place[:]), string(b.place[:])) })
	out := make([]Candidate, len(all))
	for i, k := range all {
		out[i] = k.Candidate
	}
	return out
}

// A Judgement is one evaluator's score of one candidate.
type Judgement struct {
	By     string   `json:"by"` // the evaluator's alias, or [OwnModel] for the agent's own model
	Score  *float64 `json:"score,omitempty"`
	Reason string   `json:"reason,omitempty"`
	Error  string   `json:"error,omitempty"` // why there is no score
}

// OwnModel stands for the agent's own model in place of an alias.
const OwnModel = "model"

// A Score is the evaluators' combined score of one candidate.
type Score struct {
	By         []string    `json:"by"`              // aliases of the members that gave the output
	Score      *float64    `json:"score,omitempty"` // the mean; absent if no evaluator gave a score
	Judgements []Judgement `json:"judgements"`

	slot int
}

// Best finds the candidate with the highest mean score; judged[i] are the
// judgements of candidates[i]. Evaluators that gave no score are not counted.
// If two candidates have the same score, the first in document order wins,
// unless tie says otherwise. The slot is -1 if there is no winner; err then
// says why, or is nil if all outputs are to be merged. The scores are sorted,
// best first.
func Best(candidates []Candidate, judged [][]Judgement, tie Tie) (slot int, scores []Score, err *envelope.Error) {
	for i, c := range candidates {
		s := Score{By: c.By, Judgements: judged[i], slot: c.slot}
		sum, n := 0.0, 0
		for _, j := range judged[i] {
			if j.Score != nil {
				sum += *j.Score
				n++
			}
		}
		if n > 0 {
			mean := sum / float64(n)
			s.Score = &mean
		}
		scores = append(scores, s)
	}
	value := func(s Score) float64 {
		if s.Score == nil {
			return math.Inf(-1)
		}
		return *s.Score
	}
	sorted.By(scores, func(a, b Score) int {
		switch x, y := value(a), value(b); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return a.slot - b.slot
	})
	if len(scores) == 0 || scores[0].Score == nil {
		return -1, scores, swarmError("no evaluator has given a usable score%s", firstComplaint(scores))
	}
	if len(scores) > 1 && value(scores[1]) == value(scores[0]) {
		switch tie {
		case TieMerge:
			return -1, scores, nil
		case TieFail:
			return -1, scores, swarmError("two outputs have the highest score, %g", *scores[0].Score)
		}
	}
	return scores[0].slot, scores, nil
}

// firstComplaint returns why one of the evaluators gave no score.
func firstComplaint(scores []Score) string {
	for _, s := range scores {
		for _, j := range s.Judgements {
			if j.Error != "" {
				return "; " + j.By + ": " + j.Error
			}
		}
	}
	return ""
}

// A Choice is a referee's decision.
type Choice struct {
	By     string `json:"by"`              // the referee's alias
	Alias  string `json:"alias,omitempty"` // alias of the member whose output it chose; absent if the output is the referee's own
	Reason string `json:"reason,omitempty"`
	Said   string `json:"said,omitempty"` // the text of an answer that contains no decision
}
