package orchestrate

import (
	"encoding/json"
	"fmt"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Judges and the synthesizer get ordinary tasks, whose payloads docs/orchestration.md specifies.
// Each payload has a text with instructions, for agents that do not know swarms.

const (
	scoreText = `Score the candidate, an answer to the input. Reply with one JSON object and nothing else: ` +
		`{"score": a number from 0 (useless) to 1 (perfect), "reason": "why, in a sentence"}`
	scoresText = `Score each of the candidates, answers to the input. Reply with one JSON object and nothing else: ` +
		`{"scores": [one number from 0 (useless) to 1 (perfect) for each candidate, in their order]}`
	refereeText = `Decide which of the candidates, answers to the input, holds. Reply with one JSON object and nothing else: ` +
		`{"choice": its number n, "reason": "why, in a sentence"}; or, if none holds, {"output": a JSON object that is the right answer, "reason": "why"}`
	mergeText = `Merge the results, each one agent's answer to the input, into one answer.`
)

type scoreTask struct {
	Text      string          `json:"text"`
	Input     json.RawMessage `json:"input"`
	Candidate json.RawMessage `json:"candidate"`
}

type numbered struct {
	N      int             `json:"n"`
	Output json.RawMessage `json:"output"`
}

type choiceTask struct {
	Text       string          `json:"text"`
	Input      json.RawMessage `json:"input"`
	Candidates []numbered      `json:"candidates"`
}

// scorePayload is an evaluator's task: to score one candidate.
func scorePayload(input json.RawMessage, c Candidate) json.RawMessage {
	return mustJSON(scoreTask{scoreText, orNull(input), c.Output})
}

// scoresPayload is the question to the agent's own model: to score all
// candidates at once.
func scoresPayload(input json.RawMessage, cs []Candidate) json.RawMessage {
	return mustJSON(choiceTask{scoresText, orNull(input), number(cs)})
}

// refereePayload is a referee's task: to decide between the candidates.
func refereePayload(input json.RawMessage, cs []Candidate) json.RawMessage {
	return mustJSON(choiceTask{refereeText, orNull(input), number(cs)})
}

// refereeForm is the schema of a person's decision about n candidates. An
// answer that does not fit is rejected, and the person may answer again.
func refereeForm(n int) json.RawMessage {
	return fmt.Appendf(nil, `{"type":"object","properties":{"choice":{"type":"integer","minimum":1,"maximum":%d,"description":"the number of a candidate"},`+
		`"output":{"type":"object","description":"the right answer, if none of the candidates is"},"reason":{"type":"string"}},`+
		`"oneOf":[{"required":["choice"]},{"required":["output"]}]}`, n)
}

func number(cs []Candidate) []numbered {
	out := make([]numbered, len(cs))
	for i, c := range cs {
		out[i] = numbered{i + 1, c.Output}
	}
	return out
}

// A MemberResult is the output of one member of a swarm.
type MemberResult struct {
	Alias  string          `json:"alias"`
	Entity string          `json:"entity,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
}

// A Failure is the error of one member of a swarm.
type Failure struct {
	Alias  string       `json:"alias"`
	Entity string       `json:"entity,omitempty"`
	Error  FailureError `json:"error"`
}

// FailureError is the public part of an error.
type FailureError struct {
	Code      envelope.Code `json:"code"`
	Message   string        `json:"message"`
	Retryable bool          `json:"retryable"`
}

// merging is the payload of a synthesizer's task and, without the text, the
// result of the default merge.
type merging struct {
	Text     string          `json:"text,omitempty"`
	Input    json.RawMessage `json:"input,omitempty"`
	Results  []MemberResult  `json:"results"`
	Failures []Failure       `json:"failures"`
	Swarm    *Record         `json:"swarm,omitempty"`
}

// mergePayload is the synthesizer's task: to make the swarm's result. s is the
// record of the consensus; nil if there was none.
func mergePayload(input json.RawMessage, outcomes []Outcome, s *Record) json.RawMessage {
	m := merging{Text: mergeText, Input: orNull(input), Results: resultsOf(outcomes), Failures: failuresOf(outcomes), Swarm: s}
	return mustJSON(m)
}

func resultsOf(outcomes []Outcome) []MemberResult {
	out := []MemberResult{}
	for _, o := range inOrder(outcomes) {
		if o.OK() {
			out = append(out, MemberResult{o.Alias, o.Entity, o.Output})
		}
	}
	return out
}

func failuresOf(outcomes []Outcome) []Failure {
	out := []Failure{}
	for _, o := range inOrder(outcomes) {
		if o.Err != nil {
			out = append(out, Failure{o.Alias, o.Entity, FailureError{o.Err.Code, clip.Text(o.Err.Message, maxReason), o.Err.Retryable}})
		}
	}
	return out
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// mustJSON encodes values that always can be encoded: our own structs around
// valid JSON.
func mustJSON(v any) json.RawMessage {
	raw, err := envelope.EncodeJSON(v)
	if err != nil {
		panic("orchestrate: encode: " + err.Error())
	}
	return raw
}
