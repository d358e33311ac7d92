package traffic

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
)

// stepWords describes an event on bus.mesh.run in a few words.
func stepWords(e *envelope.Envelope) string {
	var s intents.StepEvent
	if json.Unmarshal(e.Payload, &s) != nil {
		return ""
	}
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if s.Error != nil {
		parts = append(parts, string(s.Error.Code))
	}
	if who := named(s.Alias, s.To); who != "" {
		parts = append(parts, who)
	}
	if s.Try > 1 {
		add("try %d", s.Try)
	}
	switch e.Intent {
	case intents.RunStepFinished, intents.RunStepFailed:
		add("%.1fms", s.DurationMS)
	case intents.RunVoted:
		parts = append(parts, voteWords(s))
	}
	switch {
	case s.By != "":
		add("by %s", s.By)
	case s.Then != "":
		add("then %s", s.Then)
	}
	if s.Until != "" {
		add("until %s", s.Until)
	}
	if s.Detail != "" {
		add("(%s)", s.Detail)
	}
	return strings.Join(parts, " ")
}

// named formats a member's alias with its entity.
func named(alias, entity string) string {
	switch {
	case alias == "" || alias == entity:
		return entity
	case entity == "":
		return alias
	}
	return alias + " (" + entity + ")"
}

// voteWords describes the result of a consensus: "majority_vote 3:2 → style".
func voteWords(s intents.StepEvent) string {
	var counts []string
	for i, v := range s.Votes {
		if i == 8 {
			counts = append(counts, "…")
			break
		}
		counts = append(counts, fmt.Sprint(v.Count))
	}
	for i, v := range s.Scores {
		if i == 3 {
			counts = append(counts, "…")
			break
		}
		counts = append(counts, fmt.Sprintf("%s=%.4g", v.Alias, v.Score))
	}
	words := []string{s.Strategy}
	switch {
	case len(s.Votes) > 0:
		words = append(words, strings.Join(counts, ":"))
	case len(counts) > 0:
		words = append(words, strings.Join(counts, " "))
	}
	if s.Tied {
		words = append(words, "tied")
	}
	if s.Winner != "" {
		words = append(words, "→ "+s.Winner)
	}
	return strings.TrimSpace(strings.Join(words, " "))
}
