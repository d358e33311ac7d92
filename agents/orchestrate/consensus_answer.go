package orchestrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

const (
	maxScore  = 1e9  // bounds the absolute value of a score, so that the sum of scores stays finite
	maxReason = 2000 // bytes of a reason that are kept
)

// answerMembers returns the members of an answer if it has one of the names.
// The answer is the payload itself, or the JSON in its text, where models put
// it, often in a code fence. It returns nil if there is none. JSON with
// duplicate names or invalid UTF-8 is rejected.
func answerMembers(payload json.RawMessage, names ...string) map[string]jsontext.Value {
	top := objectOf(payload)
	if hasAny(top, names) {
		return top
	}
	var text string
	if jsonv2.Unmarshal(top["text"], &text) != nil {
		return nil
	}
	if inner := objectOf([]byte(model.Unfenced(text))); hasAny(inner, names) {
		return inner
	}
	return nil
}

func objectOf(data []byte) map[string]jsontext.Value {
	var members map[string]jsontext.Value
	if jsonv2.Unmarshal(data, &members) != nil {
		return nil
	}
	return members
}

func hasAny(members map[string]jsontext.Value, names []string) bool {
	for _, n := range names {
		if _, ok := members[n]; ok {
			return true
		}
	}
	return false
}

// readScore reads an evaluator's answer: {"score": number, "reason"?: text}.
func readScore(payload json.RawMessage) (score float64, reason string, err error) {
	m := answerMembers(payload, "score")
	if m == nil {
		return 0, "", errors.New(`the answer has no member "score"`)
	}
	score, err = scoreOf(m["score"])
	return score, reasonOf(m), err
}

// readScores reads the scores that the agent's own model gives n candidates at
// once: {"scores": [number, …]}, in the order of the candidates. null means no
// score and is returned as NaN.
func readScores(payload json.RawMessage, n int) ([]float64, error) {
	m := answerMembers(payload, "scores")
	if m == nil {
		return nil, errors.New(`the answer has no member "scores"`)
	}
	var raw []jsontext.Value
	if jsonv2.Unmarshal(m["scores"], &raw) != nil {
		return nil, errors.New("scores is no array")
	}
	if len(raw) != n {
		return nil, fmt.Errorf("there are %d scores for %d candidates", len(raw), n)
	}
	scores := make([]float64, n)
	for i, v := range raw {
		var err error
		if scores[i], err = scoreOf(v); err != nil {
			scores[i] = math.NaN()
		}
	}
	return scores, nil
}

func scoreOf(v jsontext.Value) (float64, error) {
	if v.Kind() != '0' {
		return 0, errors.New("score is no number")
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || math.Abs(f) > maxScore {
		return 0, fmt.Errorf("score is beyond ±%g", float64(maxScore))
	}
	return f, nil
}

// A ruling is a referee's decision: the number of a candidate, or an output of
// its own.
type ruling struct {
	choice int // the candidate, from 1; 0: output is the referee's own
	output json.RawMessage
	reason string
}

// errNoDecision is the error of a referee's answer that contains no decision.
var errNoDecision = errors.New("its answer names no candidate, and has no output of its own")

// readRuling reads a referee's answer about n candidates: {"choice": k} with k
// from 1 to n, a text that is k and nothing else, or {"output": object}. Any
// other text is no decision: a referee that means it as the result must send it
// as output.
func readRuling(payload json.RawMessage, n int) (ruling, error) {
	m := answerMembers(payload, "choice", "output")
	has := func(name string) bool { return m[name] != nil && m[name].Kind() != 'n' } // a strict form has both, one of them null
	switch {
	case m == nil:
		var text string
		if jsonv2.Unmarshal(objectOf(payload)["text"], &text) == nil {
			if k, err := strconv.Atoi(model.Unfenced(text)); err == nil {
				return choose(float64(k), n, "")
			}
		}
		return ruling{}, errNoDecision
	case has("choice") && has("output"):
		return ruling{}, errors.New("the answer has a choice and an output")
	case has("output") || m["choice"] == nil:
		own := Bare(json.RawMessage(m["output"]))
		if kindOf(own) != '{' {
			return ruling{}, errors.New("output is no object")
		}
		return ruling{output: own, reason: reasonOf(m)}, nil
	}
	k, err := strconv.ParseFloat(string(m["choice"]), 64)
	if m["choice"].Kind() != '0' || err != nil || k != math.Trunc(k) {
		return ruling{}, errors.New("choice is no integer")
	}
	return choose(k, n, reasonOf(m))
}

func choose(k float64, n int, reason string) (ruling, error) {
	if k < 1 || k > float64(n) {
		return ruling{}, fmt.Errorf("choice is not one of 1 to %d", n)
	}
	return ruling{choice: int(k), reason: reason}, nil
}

// reasonText returns the text of a judge's answer, truncated to maxReason bytes.
func reasonText(payload json.RawMessage) string {
	own := Bare(payload)
	var text string
	if m := objectOf(own); len(m) == 1 && jsonv2.Unmarshal(m["text"], &text) == nil {
		return clip.Cut(text, maxReason)
	}
	return clip.Cut(string(own), maxReason)
}

// reasonOf returns the reason in an answer, truncated to maxReason bytes.
func reasonOf(m map[string]jsontext.Value) string {
	var s string
	if jsonv2.Unmarshal(m["reason"], &s) != nil {
		return ""
	}
	return clip.Cut(s, maxReason)
}
